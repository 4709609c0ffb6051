//! Exports traces of runs if the program is built with the `otel` feature; otherwise does nothing.
//!
//! Spans of the target [`TARGET`] are sent with OTLP over HTTP to `OTEL_EXPORTER_OTLP_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, from a separate thread. Without either variable nothing is sent. No span
//! contains a post's text or a secret.

/// The target of spans for traces; log lines do not show it.
pub(super) const TARGET: &str = "otel";

#[cfg(not(feature = "otel"))]
mod built {
    use tracing_subscriber::layer::Identity;

    /// Returns no layer.
    pub(crate) fn layer() -> Option<Identity> {
        None
    }

    /// Does nothing.
    pub(crate) fn finish() {}
}

#[cfg(feature = "otel")]
mod built {
    use std::sync::OnceLock;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
    use tracing_opentelemetry::OpenTelemetryLayer;
    use tracing_subscriber::Registry;

    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

    /// Returns the layer that exports spans, if an endpoint is set.
    pub(crate) fn layer() -> Option<OpenTelemetryLayer<Registry, Tracer>> {
        let named = [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ];
        if !named
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        {
            return None;
        }
        // The exporter's HTTP client panics without a crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = match SpanExporter::builder().with_http().build() {
            Ok(exporter) => exporter,
            Err(error) => {
                super::super::fatal(&format!("traces are not sent: {error}"), &[]);
                return None;
            }
        };
        let resource = Resource::builder();
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource,
            None => resource.with_service_name("topicmill"),
        };
        let resource = resource.build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("topicmill");
        // Cannot fail, because this function is called once.
        drop(PROVIDER.set(provider));
        Some(tracing_opentelemetry::layer().with_tracer(tracer))
    }

    /// Flushes the remaining spans, for at most a few seconds.
    pub(crate) fn finish() {
        if let Some(provider) = PROVIDER.get() {
            // The program ends here, so an error cannot be reported.
            let _ = provider.shutdown();
        }
    }
}

pub(super) use built::{finish, layer};
