import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.pulsar.client.api.MessageId;

/** Reads ids as hex, one a line, and prints a line for each: its place in the order, its text, and how it compares. */
public class CompareIds {
    public static void main(String[] args) throws Exception {
        List<MessageId> ids = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ids.add(MessageId.fromByteArray(HexFormat.of().parseHex(line)));
        }
        List<MessageId> sorted = new ArrayList<>(ids);
        sorted.sort(null);
        for (int index = 0; index < ids.size(); index++) {
            StringBuilder signs = new StringBuilder();
            for (MessageId other : ids) {
                signs.append("<=>".charAt(Integer.signum(ids.get(index).compareTo(other)) + 1));
            }
            System.out.printf("ID\t%s\t%s\t%s%n", ids.get(index), sorted.get(index), signs);
        }
    }
}
