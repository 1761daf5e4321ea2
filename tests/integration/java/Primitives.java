import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Sends one message of each primitive schema, each to a topic of its own.
 *
 * Arguments: settings of the client, the beginning of the topics' names.
 */
public class Primitives {
    record Sent(Schema<?> schema, Object value) {}

    static Map<String, Sent> all() {
        Map<String, Sent> found = new LinkedHashMap<>();
        Date date = new Date(1_700_000_000_123L);
        LocalDate day = LocalDate.of(2030, 1, 2);
        found.put("BOOLEAN", new Sent(Schema.BOOL, true));
        found.put("INT32", new Sent(Schema.INT32, -5));
        found.put("DATE", new Sent(Schema.DATE, date));
        found.put("TIME", new Sent(Schema.TIME, new java.sql.Time(3_600_000L)));
        found.put("TIMESTAMP", new Sent(Schema.TIMESTAMP, new java.sql.Timestamp(date.getTime())));
        found.put("INSTANT", new Sent(Schema.INSTANT, Instant.ofEpochSecond(1_700_000_000L, 123_456_789)));
        found.put("LOCAL_DATE", new Sent(Schema.LOCAL_DATE, day));
        found.put("LOCAL_TIME", new Sent(Schema.LOCAL_TIME, LocalTime.of(1, 2, 3, 4_000)));
        found.put("LOCAL_DATE_TIME", new Sent(Schema.LOCAL_DATE_TIME, LocalDateTime.of(1900, 1, 2, 3, 4, 5, 6_000)));
        found.put("inline", new Sent(Schema.KeyValue(Schema.INT32, Schema.BOOL, KeyValueEncodingType.INLINE),
                new KeyValue<>(-5, true)));
        found.put("separated", new Sent(
                Schema.KeyValue(Schema.LOCAL_DATE, Schema.INSTANT, KeyValueEncodingType.SEPARATED),
                new KeyValue<>(day, Instant.EPOCH)));
        found.put("no-value", new Sent(Schema.KeyValue(Schema.STRING, Schema.BOOL, KeyValueEncodingType.INLINE),
                new KeyValue<>("k", null)));
        return found;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(Schemas.settings(args[0])).build()) {
            for (Map.Entry<String, Sent> one : all().entrySet()) {
                Schema schema = one.getValue().schema();
                try (Producer producer = client.newProducer(schema).topic(args[1] + one.getKey()).create()) {
                    producer.send(one.getValue().value());
                }
            }
        }
    }
}
