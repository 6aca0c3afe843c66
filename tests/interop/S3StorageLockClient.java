// A client of our own under the name of the class that Hudi's StorageBasedLockProvider loads for s3 and s3a: Hudi's is in hudi-aws,
// which no repository here has. Plain HTTP against a server that checks no signatures, at -Dtests.s3=http://127.0.0.1:PORT.

package org.apache.hudi.aws.transaction.lock;

import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

public class S3StorageLockClient implements StorageLockClient {
  private static final String SIGNED =
      "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
  private final HttpClient http = HttpClient.newHttpClient();
  private final String file;

  public S3StorageLockClient(String owner, String uri, Properties properties) {
    file = at(uri);
  }

  private static String at(String uri) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    return System.getProperty("tests.s3") + "/" + place.getLeft() + "/" + place.getRight();
  }

  private HttpResponse<byte[]> send(HttpRequest.Builder request) throws Exception {
    return http.send(request.header("Authorization", SIGNED).build(), HttpResponse.BodyHandlers.ofByteArray());
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    HttpResponse<byte[]> found;
    try {
      found = send(HttpRequest.newBuilder(URI.create(file)).GET());
    } catch (Exception error) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
    if (found.statusCode() == 404) {
      return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
    }
    if (found.statusCode() != 200) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
    String version = found.headers().firstValue("ETag").get();
    return Pair.of(
        LockGetResult.SUCCESS, Option.of(StorageLockFile.createFromStream(new ByteArrayInputStream(found.body()), version)));
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(StorageLockData data, Option<StorageLockFile> before) {
    try {
      HttpRequest.Builder put =
          HttpRequest.newBuilder(URI.create(file)).PUT(HttpRequest.BodyPublishers.ofByteArray(StorageLockFile.toByteArray(data)));
      put = before.isPresent() ? put.header("If-Match", before.get().getVersionId()) : put.header("If-None-Match", "*");
      HttpResponse<byte[]> done = send(put);
      if (done.statusCode() == 200) {
        return Pair.of(
            LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(data, done.headers().firstValue("ETag").get())));
      }
      return Pair.of(
          done.statusCode() == 412 ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    } catch (Exception error) {
      return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String path, boolean checkExists) {
    try {
      HttpResponse<byte[]> found = send(HttpRequest.newBuilder(URI.create(at(path))).GET());
      return found.statusCode() == 200 ? Option.of(new String(found.body(), StandardCharsets.UTF_8)) : Option.empty();
    } catch (Exception error) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String path, String content) {
    try {
      return send(HttpRequest.newBuilder(URI.create(at(path))).PUT(HttpRequest.BodyPublishers.ofString(content))).statusCode() == 200;
    } catch (Exception error) {
      return false;
    }
  }

  @Override
  public void close() {}
}
