//! Where the ONNX Runtime library is.
//!
//! It is a file of some 30 MB (with CUDA several hundred) that comes in a Python wheel, so it is neither
//! linked nor shipped but looked for: where the setting says, where `ORT_DYLIB_PATH` says, in a `.venv` here
//! or in a folder above, and by its name where the system looks.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A place where the library may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Somebody said so: it must be there.
    Told {
        /// The file.
        path: PathBuf,
        /// Who said so.
        by: &'static str,
    },
    /// Found in a virtual environment.
    Found(PathBuf),
    /// Not found; these names may mean something to the system.
    System(Vec<PathBuf>),
}

/// Where to load ONNX Runtime from: `setting` is `onnxruntime.library`, `variable` the value of
/// `ORT_DYLIB_PATH`, `starts` the folders to look in and above for a `.venv`.
pub fn place(setting: Option<&Path>, variable: Option<OsString>, starts: &[PathBuf]) -> Place {
    if let Some(path) = setting.filter(|path| !path.as_os_str().is_empty()) {
        return Place::Told {
            path: path.to_owned(),
            by: "onnxruntime.library",
        };
    }
    if let Some(path) = variable.filter(|path| !path.is_empty()) {
        return Place::Told {
            path: path.into(),
            by: "ORT_DYLIB_PATH",
        };
    }
    let found = starts
        .iter()
        .flat_map(|start| start.ancestors())
        .find_map(|dir| in_venv(&dir.join(".venv")));
    found.map_or_else(|| Place::System(system_names()), Place::Found)
}

/// The folders from which to look: where the user is and where the program is.
pub fn starts() -> Vec<PathBuf> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned));
    std::env::current_dir()
        .ok()
        .into_iter()
        .chain(program)
        .collect()
}

fn in_venv(venv: &Path) -> Option<PathBuf> {
    let pythons = entries(&venv.join("lib"))
        .into_iter()
        .map(|python| python.join("site-packages"));
    // Where `make` puts it, and where Windows has its packages.
    let others = [venv.join("native"), venv.join("Lib").join("site-packages")];
    pythons
        .chain(others)
        .find_map(|site| library_in(&site.join("onnxruntime").join("capi")))
}

fn library_in(capi: &Path) -> Option<PathBuf> {
    let mut files = entries(capi);
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // `libonnxruntime_providers_shared.so` lies beside it.
        name.starts_with("libonnxruntime.so")
            || (name.starts_with("libonnxruntime.") && name.ends_with(".dylib"))
            || name == "onnxruntime.dll"
    });
    files.pop()
}

/// Where NVIDIA's wheels keep their libraries, beside the wheel that `library` came in: no loader looks there.
pub fn nvidia_folders(library: &Path) -> Vec<PathBuf> {
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

/// What is in a folder, sorted; nothing where it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

fn system_names() -> Vec<PathBuf> {
    let names: &[&str] = match std::env::consts::OS {
        "windows" => &["onnxruntime.dll"],
        "macos" => &[
            "libonnxruntime.dylib",
            "/opt/homebrew/lib/libonnxruntime.dylib",
            "/usr/local/lib/libonnxruntime.dylib",
        ],
        _ => &["libonnxruntime.so", "libonnxruntime.so.1"],
    };
    names.iter().map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn what_the_user_says_comes_first() {
        let setting = place(Some(Path::new("/a.so")), Some("/b.so".into()), &[]);
        assert_eq!(
            setting,
            Place::Told {
                path: "/a.so".into(),
                by: "onnxruntime.library"
            }
        );
        let variable = place(Some(Path::new("")), Some("/b.so".into()), &[]);
        assert_eq!(
            variable,
            Place::Told {
                path: "/b.so".into(),
                by: "ORT_DYLIB_PATH"
            }
        );
        assert!(
            matches!(place(None, Some(OsString::new()), &[]), Place::System(names) if !names.is_empty())
        );
    }

    #[test]
    fn the_wheels_of_nvidia_are_found_beside_that_of_the_runtime() {
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

    #[test]
    fn a_virtual_environment_is_found_from_a_folder_below() {
        let dir = tempfile::tempdir().unwrap();
        let capi = dir
            .path()
            .join(".venv/lib/python3.11/site-packages/onnxruntime/capi");
        touch(capi.join("libonnxruntime_providers_shared.so"));
        let below = dir.path().join("target/release");
        assert!(matches!(
            place(None, None, std::slice::from_ref(&below)),
            Place::System(_)
        ));
        let library = touch(capi.join("libonnxruntime.so.1.31.1"));
        assert_eq!(place(None, None, &[below]), Place::Found(library));

        let unpacked = tempfile::tempdir().unwrap();
        let library = touch(
            unpacked
                .path()
                .join(".venv/native/onnxruntime/capi/libonnxruntime.1.31.1.dylib"),
        );
        assert_eq!(
            place(None, None, &[unpacked.path().to_owned()]),
            Place::Found(library)
        );
    }
}
