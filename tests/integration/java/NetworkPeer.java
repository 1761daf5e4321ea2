import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/**
 * A client in a container of the broker's network: receives what there is on one topic, and sends it on to another.
 *
 * Arguments: service URL, admin URL, the authority's certificate or "-", source topic, target topic, number of messages.
 * Prints the number of partitions of both topics, as the look-up and the admin API say, and each payload.
 */
public class NetworkPeer {
    public static void main(String[] args) throws Exception {
        String certificates = args[2].equals("-") ? null : args[2];
        int count = Integer.parseInt(args[5]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).tlsTrustCertsFilePath(certificates)
                        .enableTlsHostnameVerification(true).operationTimeout(20, TimeUnit.SECONDS).build();
                PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(args[1]).tlsTrustCertsFilePath(certificates)
                        .enableTlsHostnameVerification(true).build()) {
            System.out.println("client " + client.getPartitionsForTopic(args[3]).get().size());
            System.out.println("admin " + admin.topics().getPartitionedTopicMetadata(args[4]).partitions);
            Consumer<byte[]> consumer = client.newConsumer().topic(args[3]).subscriptionName("peer")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            List<byte[]> payloads = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = consumer.receive(20, TimeUnit.SECONDS);
                payloads.add(message.getData());
                consumer.acknowledge(message);
                System.out.println("received " + new String(message.getData()));
            }
            Producer<byte[]> producer = client.newProducer().topic(args[4]).create();
            for (byte[] payload : payloads) {
                producer.newMessage().key(new String(payload)).value(payload).send();
            }
        }
    }
}
