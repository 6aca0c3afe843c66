#!/bin/sh
# Entry point of the image: `tagstream` with the given arguments. Spark on Kubernetes gives `driver ...` and `executor`.
set -eu

for folder in "$HOME" $(echo "$SPARK_LOCAL_DIRS" | tr , ' '); do
    if ! [ -w "$folder" ]; then
        echo "tagstream: error: $folder can't be written to: mount a volume there that uid $(id -u) may write to" >&2
        exit 3
    fi
done

# Hadoop's login needs the user's name, and fails for a user without one.
if ! getent passwd "$(id -u)" >/dev/null; then
    names=$(mktemp -d)
    printf 'tagstream:x:%s:%s::%s:/usr/sbin/nologin\n' "$(id -u)" "$(id -g)" "$HOME" | cat /etc/passwd - >"$names/passwd"
    export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$names/passwd" NSS_WRAPPER_GROUP=/etc/group
fi

case ${1:-} in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    # Java options are in SPARK_JAVA_OPT_0 and so on.
    set --
    while option=$(printenv "SPARK_JAVA_OPT_$#"); do
        set -- "$@" "$option"
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tagstream "$@"
    ;;
esac
