import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TraceableMessageId;
import org.apache.pulsar.client.impl.tracing.TracingContext;

/**
 * Receives one message and passes it on to another topic, traced by the Java client itself, and prints its spans.
 *
 * The client of 4.2.4 traces what it receives only: its interceptor of producers never runs (apache/pulsar 25584), and
 * would write no context into the message (25749). So the program writes the context that is current, that of the
 * message's own span, as its API has it.
 *
 * Arguments: settings of the client, topic, other topic.
 */
public class PassOn {
    public static void main(String[] args) throws Exception {
        SdkTracerProvider spans = SdkTracerProvider.builder()
                .addSpanProcessor(SimpleSpanProcessor.create(new Printer())).build();
        // The client asks the global one for propagators, whichever it was given.
        OpenTelemetrySdk telemetry = OpenTelemetrySdk.builder().setTracerProvider(spans)
                .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance()))
                .buildAndRegisterGlobal();
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).openTelemetry(telemetry)
                .enableTracing(true).build();
                Producer<byte[]> producer = client.newProducer().topic(args[2]).create();
                Consumer<byte[]> consumer = client.newConsumer().topic(args[1]).subscriptionName("java")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            Message<byte[]> message = consumer.receive(20, TimeUnit.SECONDS);
            Span span = ((TraceableMessageId) message.getMessageId()).getTracingSpan();
            try (Scope scope = span.makeCurrent()) {
                var next = producer.newMessage().value(message.getData());
                TracingContext.injectContext(next, Context.current(),
                        GlobalOpenTelemetry.getPropagators().getTextMapPropagator());
                next.send();
            }
            consumer.acknowledge(message);
        }
        spans.close();
    }

    /** Prints each span that has ended: its name, the ids of its trace, of itself and of its parent. */
    static class Printer implements SpanExporter {
        @Override
        public CompletableResultCode export(Collection<SpanData> ended) {
            for (SpanData one : ended) {
                System.out.printf("SPAN\t%s\t%s\t%s\t%s%n", one.getName(), one.getTraceId(), one.getSpanId(),
                        one.getParentSpanId());
            }
            return CompletableResultCode.ofSuccess();
        }

        @Override
        public CompletableResultCode flush() {
            return CompletableResultCode.ofSuccess();
        }

        @Override
        public CompletableResultCode shutdown() {
            return CompletableResultCode.ofSuccess();
        }
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String text) {
        return text.lines().map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
