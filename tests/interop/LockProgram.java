// A lock of real Hudi, by Hudi's own LockManager, for tests/interop/test_locks.py. Properties of Hudi come as -Dhoodie.*.
// Commands, one a line: lock, unlock, close, hash TEXT. The answer's line begins with ANSWER.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.client.transaction.lock.LockManager;
import org.apache.hudi.common.util.hash.HashID;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.storage.HoodieStorageUtils;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

public class LockProgram {
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    for (String name : System.getProperties().stringPropertyNames()) {
      if (name.startsWith("hoodie.")) {
        properties.setProperty(name, System.getProperty(name));
      }
    }
    String base = properties.getProperty("hoodie.base.path");
    HoodieWriteConfig config =
        HoodieWriteConfig.newBuilder().withPath(base).withProps(properties).forTable(properties.getProperty("hoodie.table.name")).build();
    StorageConfiguration<?> settings = new HadoopStorageConfiguration(new Configuration());
    LockManager locks = new LockManager(config, HoodieStorageUtils.getStorage(new StoragePath("file:///tmp"), settings));
    answer("ready");
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      String[] words = line.trim().split(" ", 2);
      try {
        switch (words[0]) {
          case "lock":
            locks.lock();
            answer("ok");
            break;
          case "unlock":
            locks.unlock();
            answer("ok");
            break;
          case "close":
            locks.close();
            answer("ok");
            break;
          case "hash":
            answer(HashID.generateXXHashAsString(words[1], HashID.Size.BITS_64));
            break;
          default:
            answer("unknown " + words[0]);
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
