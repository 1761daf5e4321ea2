import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Sends messages in a transaction that stays open, between others: URL, topic, and how many before, in and after it. */
public final class SendInTransaction {
    public static void main(String[] arguments) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
        Producer<byte[]> producer = client.newProducer().topic(arguments[1]).enableBatching(false)
                .sendTimeout(0, TimeUnit.SECONDS).create();
        Transaction open = client.newTransaction().withTransactionTimeout(1, TimeUnit.HOURS).build().get();
        for (int part = 0; part < 3; part++) {
            for (int number = 0; number < Integer.parseInt(arguments[2 + part]); number++) {
                byte[] text = (part + " " + number).getBytes(StandardCharsets.UTF_8);
                (part == 1 ? producer.newMessage(open) : producer.newMessage()).value(text).send();
            }
        }
        System.exit(0); // a close would wait for the end of the transaction
    }
}
