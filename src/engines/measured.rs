//! Applies the measurements of `bench agreement` to the choice of engine and precision.
//!
//! A measurement holds only for the same CPU model, thread count, model and library. If scores may differ from float32
//! by more than 1e-4, only measured configurations are used.

use std::path::PathBuf;

use topicmill_score::folder::Processor;
use topicmill_score::onnx::{Runtime, load_runtime};
use topicmill_score::openvino::{OpenVino, load_openvino};
use topicmill_score::{Device, EngineName, ModelError, ModelFolder};

use super::agreement::{Agreement, Measured, fastest};
use super::cache_file::CacheFile;
use super::{EnginesError, ModelChoice, cache_folder, cores, device_model, find_model};

/// The reference precision.
const FP32: &str = "fp32";

impl ModelChoice {
    /// Chooses the fastest engine and precision that reached this agreement in `bench agreement`. For
    /// [`Agreement::EXACT`] no measurement is required: without any, the choice is unchanged.
    ///
    /// # Errors
    /// [`EnginesError::NotMeasured`], and [`EnginesError::Folder`].
    pub fn with_measured_engine(self, agreement: Agreement) -> Result<Self, EnginesError> {
        if agreement.is_exact() {
            return Ok(self.with_measured_exact_engine().unwrap_or(self));
        }
        if self.devices.iter().any(|device| self.may_be_gpu(*device)) {
            tracing::debug!("a GPU computes faster than any engine on the CPU");
            return Ok(self);
        }
        let missing = |why: String| {
            let model = self.model.display().to_string();
            EnginesError::NotMeasured(agreement, model, why)
        };
        let measured = self.measured(&self.folder_in_fp32()?);
        if measured.is_empty() {
            return Err(missing(
                match agreement_cache().filter(CacheFile::is_damaged) {
                    Some(kept) => format!(
                        "the measurements in `{}` cannot be read; the next measurement will replace them",
                        kept.path().display()
                    ),
                    None => "it has not been measured on this machine".to_owned(),
                },
            ));
        }
        let precision = self.precision.as_deref();
        let found = fastest(&measured, agreement, precision).ok_or_else(|| {
            missing("no measured configuration reaches this agreement".to_owned())
        })?;
        if !self.is_installed_library(found) {
            let was = &found.runtime;
            return Err(missing(format!(
                "it was measured with a different library ({was}) from the one installed"
            )));
        }
        Ok(self.with(found))
    }

    /// Switches to an engine with the same scores, if it was measured to be faster.
    fn with_measured_exact_engine(&self) -> Option<Self> {
        // The cheapest check first: most users have measured nothing.
        agreement_cache().filter(|kept| kept.path().exists())?;
        if self.devices.iter().any(|device| self.may_be_gpu(*device)) {
            return None;
        }
        let folder = self.folder_of(self.precision.as_deref()).ok()?;
        if folder.precision != FP32 {
            return None;
        }
        let measured = self.measured(&folder);
        let found = fastest(&measured, Agreement::EXACT, Some(FP32))?;
        self.is_installed_library(found).then(|| self.with(found))
    }

    fn with(&self, found: &Measured) -> Self {
        let own = self.folder_of(None);
        let is_own = own.is_ok_and(|own| own.precision == found.config.precision);
        Self {
            // The only graph of a folder need not be named after its precision.
            precision: (!is_own).then(|| found.config.precision.clone()),
            engine: found.config.engine,
            why: Some(format!(
                "measured as the fastest with enough agreement: {} of {} texts got the same label as in float32",
                found.agreed, found.texts
            )),
            ..self.clone()
        }
    }

    /// Returns the measurements for the allowed engines.
    fn measured(&self, folder: &ModelFolder) -> Vec<Measured> {
        let kept = agreement_cache().and_then(|kept| kept.get(&self.key(folder)));
        let mut measured: Vec<Measured> = kept.unwrap_or_default();
        measured.retain(|one| self.engine == EngineName::Auto || one.config.engine == self.engine);
        measured
    }

    /// Stores the measurements for this model for [`ModelChoice::with_measured_engine`].
    ///
    /// # Errors
    /// Returns a message if they cannot be stored.
    pub fn store_measurements(&self, measured: &[Measured]) -> Result<PathBuf, String> {
        let kept = agreement_cache().ok_or("neither XDG_CACHE_HOME nor HOME names a folder")?;
        let folder = self.folder_in_fp32().map_err(|error| error.to_string())?;
        kept.insert(&self.key(&folder), measured.to_vec())
    }

    /// Returns the cache key: the folder's hash with its float32 graph, the CPU model, threads (0 for one per core),
    /// and the cores available to this process.
    fn key(&self, folder: &ModelFolder) -> String {
        let (hash, device) = (&folder.manifest_hash, device_model(Device::Cpu));
        let (threads, cores) = (self.threads.unwrap_or_default(), cores());
        format!("{hash} on {device}, {threads} threads of {cores} cores")
    }

    fn may_be_gpu(&self, device: Device) -> bool {
        match device {
            Device::Cpu => false,
            Device::Cuda(_) => true,
            Device::Auto => load_runtime(self.library.as_deref()).is_ok_and(Runtime::has_cuda),
        }
    }

    /// Returns true if the installed library is the one that was measured.
    fn is_installed_library(&self, measured: &Measured) -> bool {
        let here = if measured.config.engine == EngineName::OpenVino {
            load_openvino(self.openvino.as_deref()).map(OpenVino::fingerprint)
        } else {
            load_runtime(self.library.as_deref()).map(Runtime::fingerprint)
        };
        here.is_ok_and(|here| here == measured.runtime)
    }

    fn folder_of(&self, precision: Option<&str>) -> Result<ModelFolder, ModelError> {
        ModelFolder::open_for(&find_model(&self.model), Processor::Cpu, precision)
    }

    /// Opens the folder with its float32 graph. If a folder has only one graph, that graph may have any name.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn folder_in_fp32(&self) -> Result<ModelFolder, ModelError> {
        match self.folder_of(None) {
            Ok(folder) if folder.precision == FP32 => Ok(folder),
            _ => self.folder_of(Some(FP32)),
        }
    }
}

/// Returns the cache of measurements; `None` for a user without a home folder.
fn agreement_cache() -> Option<CacheFile> {
    Some(CacheFile::in_folder(&cache_folder()?, "agreement.json"))
}
