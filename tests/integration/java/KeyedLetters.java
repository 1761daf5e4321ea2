import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;

/**
 * Prints the messages of a topic: "letter", if the key is bytes, the text of these bytes, and the payload.
 *
 * Arguments: settings of the client, the topic, how many messages it has.
 */
public class KeyedLetters {
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(Schemas.settings(args[0])).build();
                Reader<byte[]> reader =
                        client.newReader().topic(args[1]).startMessageId(MessageId.earliest).create()) {
            for (int left = Integer.parseInt(args[2]); left > 0; left--) {
                Message<byte[]> message = reader.readNext();
                byte[] data = message.getData();
                System.out.println(String.join(" ", "letter", "" + message.hasBase64EncodedKey(),
                        new String(message.getKeyBytes(), "UTF-8"), data == null ? "null" : new String(data, "UTF-8")));
            }
        }
    }
}
