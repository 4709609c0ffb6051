//! Loads the libraries that ONNX Runtime needs for CUDA.

use std::path::{Path, PathBuf};

use ort::ep::cuda::{CUDA_DYLIBS, CUDNN_DYLIBS};
use ort::util::preload_dylib;

use super::runtime::Runtime;
use crate::library::entries;

/// The driver, which is installed with the kernel module rather than from a wheel.
const DRIVER: &str = "libcuda.so.1";

/// Loads the libraries of the CUDA provider, from the folders of NVIDIA's wheels or from the system's path, so that the
/// provider finds them. Returns the names of missing ones, or an error if CUDA cannot work at all.
pub(super) fn preload(runtime: &Runtime) -> Result<Vec<&'static str>, String> {
    if !runtime.has_cuda() {
        return Err(format!(
            "the ONNX Runtime at `{}` was built without CUDA; install `onnxruntime-gpu`",
            runtime.library().display()
        ));
    }
    if preload_dylib(DRIVER).is_err() {
        return Err(format!(
            "`{DRIVER}` cannot be loaded, so there is no NVIDIA driver and no GPU here; install the driver"
        ));
    }
    let folders = nvidia_folders(runtime.library());
    let load = |name: &str| {
        let mut files = folders.iter().map(|folder| folder.join(name));
        files.any(|file| preload_dylib(file).is_ok()) || preload_dylib(name).is_ok()
    };
    let needed = CUDA_DYLIBS.iter().chain(CUDNN_DYLIBS);
    Ok(needed.copied().filter(|name| !load(name)).collect())
}

/// Returns the library folders of NVIDIA's wheels next to the wheel of `library`; no loader searches them.
fn nvidia_folders(library: &Path) -> Vec<PathBuf> {
    // site-packages/onnxruntime/capi/libonnxruntime.so and site-packages/nvidia/cu13/lib
    let Some(site) = library.ancestors().nth(3) else {
        return Vec::new();
    };
    entries(&site.join("nvidia"))
        .into_iter()
        .flat_map(|wheel| [wheel.join("lib"), wheel.join("bin")])
        .filter(|folder| folder.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nvidia_wheels_are_found_next_to_the_runtime() {
        let touch = |path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let dir = tempfile::tempdir().unwrap();
        let library = touch(dir.path().join("onnxruntime/capi/libonnxruntime.so.1.31.1"));
        assert!(nvidia_folders(&library).is_empty());
        let cudnn = touch(dir.path().join("nvidia/cudnn/lib/libcudnn.so.9"));
        let cuda = touch(dir.path().join("nvidia/cu13/lib/libcudart.so.13"));
        touch(dir.path().join("nvidia/cu13/include/cuda.h"));
        let parents = [cuda, cudnn].map(|file| file.parent().unwrap().to_owned());
        assert_eq!(nvidia_folders(&library), parents);
        assert!(nvidia_folders(Path::new("libonnxruntime.so")).is_empty());
    }
}
