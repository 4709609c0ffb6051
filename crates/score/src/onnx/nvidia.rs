//! Finds the libraries of NVIDIA's wheels, which ONNX Runtime needs for CUDA.

use std::path::{Path, PathBuf};

use crate::library::entries;

/// Returns the library folders of NVIDIA's wheels next to the wheel of `library`; no loader searches them.
pub(super) fn nvidia_folders(library: &Path) -> Vec<PathBuf> {
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
