package tagstream;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which starts no process to set the permissions of a file.
 *
 * <p>Without Hadoop's native library, which a Spark from PyPI does not have, RawLocalFileSystem runs {@code chmod} for each file
 * that it creates and for its checksum. This takes some ten milliseconds, several times in a batch.
 */
public final class LocalFiles extends LocalFileSystem {
    /** Called by Hadoop. */
    public LocalFiles() {
        super(new Raw());
    }

    private static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            boolean isPosix = Files.getFileAttributeView(file, PosixFileAttributeView.class) != null;
            if (!isPosix || permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(text));
        }
    }
}
