import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.jar.JarFile;

/** Prints the keys of all options that the classes of a Hudi jar declare, one per line, with their alternative names. */
public final class HudiOptions {
  private HudiOptions() {}

  public static void main(String[] args) throws Exception {
    TreeSet<String> keys = new TreeSet<>();
    try (JarFile jar = new JarFile(args[0])) {
      for (var entry : Collections.list(jar.entries())) {
        String name = entry.getName();
        if (name.startsWith("org/apache/hudi/") && name.endsWith(".class")) {
          read(name.substring(0, name.length() - 6).replace('/', '.'), keys);
        }
      }
    }
    keys.forEach(System.out::println);
  }

  private static void read(String name, TreeSet<String> keys) {
    Field[] fields;
    try {
      fields = Class.forName(name, false, HudiOptions.class.getClassLoader()).getDeclaredFields();
    } catch (Throwable e) { // a class of something that is not in the jar
      return;
    }
    for (Field field : fields) {
      String type = field.getType().getName();
      boolean ours = type.equals("org.apache.hudi.common.config.ConfigProperty");
      if (!Modifier.isStatic(field.getModifiers()) || !(ours || type.endsWith("flink.configuration.ConfigOption"))) {
        continue;
      }
      try {
        field.setAccessible(true);
        Object option = field.get(null);
        Object key = option.getClass().getMethod("key").invoke(option);
        keys.add(key.toString());
        if (ours) {
          List<?> others = (List<?>) option.getClass().getMethod("getAlternatives").invoke(option);
          others.forEach(other -> keys.add(other.toString()));
        }
      } catch (Throwable e) {
        System.err.println(name + "." + field.getName() + ": " + e);
      }
    }
  }
}
