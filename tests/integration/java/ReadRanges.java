import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Range;

/**
 * Read a topic with Java's own key-range reader, whose filter is the broker's. Arguments: settings of the client, topic, and ranges
 * such as 0-10000. Prints the payload of each message.
 */
public class ReadRanges {
    public static void main(String[] args) throws Exception {
        var ranges = new ArrayList<Range>();
        for (int at = 2; at < args.length; at++) {
            var ends = args[at].split("-");
            ranges.add(Range.of(Integer.parseInt(ends[0]), Integer.parseInt(ends[1])));
        }
        try (var client = PulsarClient.builder().loadConf(settings(args[0])).build();
                var reader = client.newReader().topic(args[1]).startMessageId(MessageId.earliest)
                        .keyHashRange(ranges.toArray(new Range[0])).create()) {
            // hasMessageAvailable() stays true for ever when the last message is in no range, so wait for silence.
            for (var message = reader.readNext(4, TimeUnit.SECONDS); message != null;
                    message = reader.readNext(2, TimeUnit.SECONDS)) {
                System.out.println(new String(message.getData()));
            }
        }
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String lines) {
        return Arrays.stream(lines.split("\n")).map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
