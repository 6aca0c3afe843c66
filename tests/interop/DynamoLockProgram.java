// Amazon's lock client for DynamoDB, set as Hudi's DynamoDBBasedLockProvider sets it, for tests/interop/test_cloud_locks.py.
// Arguments: endpoint, table, key, lease in milliseconds. Commands, one a line: lock, unlock. The answer's line begins with ANSWER.

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

public class DynamoLockProgram {
  public static void main(String[] arguments) throws Exception {
    long lease = Long.parseLong(arguments[3]);
    DynamoDbClient database =
        DynamoDbClient.builder()
            .endpointOverride(URI.create(arguments[0]))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("x", "y")))
            .build();
    AmazonDynamoDBLockClient client =
        new AmazonDynamoDBLockClient(
            AmazonDynamoDBLockClientOptions.builder(database, arguments[1])
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withLeaseDuration(lease)
                .withHeartbeatPeriod(lease / 3)
                .withCreateHeartbeatBackgroundThread(true)
                .build());
    answer("ready " + client.lockTableExists());
    LockItem held = null;
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      try {
        switch (line.trim()) {
          case "lock":
            held =
                client.acquireLock(
                    AcquireLockOptions.builder(arguments[2])
                        .withAdditionalTimeToWaitForLock(lease)
                        .withTimeUnit(TimeUnit.MILLISECONDS)
                        .build());
            answer(held.isExpired() ? "expired" : "ok");
            break;
          case "unlock":
            answer(client.releaseLock(held) ? "ok" : "lost");
            break;
          default:
            answer("unknown " + line);
        }
      } catch (Throwable error) {
        answer(error.getClass().getSimpleName() + ": " + error.getMessage());
      }
    }
    System.exit(0);
  }

  private static void answer(String text) {
    System.out.println("ANSWER " + text.replace('\n', ' '));
    System.out.flush();
  }
}
