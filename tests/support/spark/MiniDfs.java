import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node below the folder that is named; prints their URI, and ends with its input. */
public class MiniDfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("dfs.permissions.enabled", "false");
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        System.out.println(cluster.getURI());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        System.exit(0);
    }
}
