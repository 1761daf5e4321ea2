import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.pulsar.broker.service.HashRangeExclusiveStickyKeyConsumerSelector;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;

/**
 * Ask the broker's own classes for the slot of a message. Each line of input: ordering key (hex), key (hex of UTF-8),
 * whether it is base64, producer name (hex of UTF-8), sequence id; "-" where there is none. Each line of output: the slot.
 */
public class KeySlots {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        var selector = new HashRangeExclusiveStickyKeyConsumerSelector();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new StringBuilder();
        for (var line = input.readLine(); line != null; line = input.readLine()) {
            var parts = line.split(" ");
            var metadata = new MessageMetadata().setPublishTime(1);
            if (!parts[0].equals("-")) {
                metadata.setOrderingKey(HEX.parseHex(parts[0].substring(1)));
            }
            if (!parts[1].equals("-")) {
                metadata.setPartitionKey(text(parts[1]));
                metadata.setPartitionKeyB64Encoded(Boolean.parseBoolean(parts[2]));
            }
            metadata.setProducerName(text(parts[3])).setSequenceId(Long.parseLong(parts[4]));
            out.append(selector.makeStickyKeyHash(Commands.resolveStickyKey(metadata))).append('\n');
        }
        System.out.print(out);
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex.substring(1)), StandardCharsets.UTF_8);
    }
}
