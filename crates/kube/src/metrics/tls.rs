//! TLS for metrics.
//!
//! Owns: the certificate's files. Never touches: connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The files of a certificate and of its key, in PEM.
pub(super) struct Certificate {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificate {
    /// Errors: a file cannot be read, or does not hold what it should.
    pub(super) fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let of = |path: &Path| format!("cannot use {} for TLS", path.display());
        let chain = CertificateDer::pem_file_iter(&self.certificate).with_context(|| of(&self.certificate))?;
        let chain = chain.collect::<Result<Vec<_>, _>>().with_context(|| of(&self.certificate))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).with_context(|| of(&self.key))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let config = config.with_single_cert(chain, key).with_context(|| of(&self.certificate))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
