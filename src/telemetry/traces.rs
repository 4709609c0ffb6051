//! Traces of runs, where the program is built with the feature `otel`; otherwise nothing.
//!
//! What enters are spans of the target [`TARGET`], which no log line shows. What leaves goes by OTLP over HTTP to where
//! `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) says, from a thread of its own; without either,
//! nothing leaves. No span holds a post's text or a secret.

/// What marks the spans of traces.
pub(super) const TARGET: &str = "otel";

#[cfg(not(feature = "otel"))]
mod built {
    use tracing_subscriber::layer::Identity;

    /// Nothing is sent.
    pub(crate) fn layer() -> Option<Identity> {
        None
    }

    /// There is nothing to send.
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

    /// Sends spans, where the environment says where to.
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
        // The exporter's client panics without a provider.
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
        // Called once.
        drop(PROVIDER.set(provider));
        Some(tracing_opentelemetry::layer().with_tracer(tracer))
    }

    /// Sends what is left, and waits for it for a few seconds.
    pub(crate) fn finish() {
        if let Some(provider) = PROVIDER.get() {
            // There is nobody to tell of an error any more.
            let _ = provider.shutdown();
        }
    }
}

pub(super) use built::{finish, layer};
