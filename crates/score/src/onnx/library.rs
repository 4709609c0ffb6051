//! Where the libraries are that compute: ONNX Runtime's, and OpenVINO's, which is looked for in the same places.
//!
//! ONNX Runtime is a file of some 30 MB (with CUDA several hundred) that comes in a Python wheel, so it is neither linked nor
//! shipped but looked for: where the caller says, where `ORT_DYLIB_PATH` says, in a `.venv` beside the program or in
//! its repository, among the Python packages where the program is installed (`PREFIX/bin/topicmill` and
//! `PREFIX/lib/python3.12/site-packages`: a virtual environment, `pip install --user`, a system), in
//! `PREFIX/lib/topicmill`, in this user's data folder, in a `.venv` in the current folder, and by its name where the
//! system looks.
//!
//! Whoever says where the library is says what this process runs. So nothing is taken from a folder that somebody else
//! could have put there, and nobody looks in the folders above the current one.

mod owner;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

pub use self::owner::untrusted_reason;
use super::{OnnxError, is_out_of_memory};

/// Folders above the program that are looked in: `target/TRIPLE/debug/deps` lies four below its repository.
pub const PROGRAM_ANCESTORS: usize = 5;

/// Who says where the library is, or where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// Whoever asked for the library.
    Caller,
    /// The variable `ORT_DYLIB_PATH`.
    Variable,
    /// A `.venv` beside the program or in its repository.
    Program,
    /// Where the program is installed: the Python packages there, or [`system_folder`].
    Prefix,
    /// This user's data folder, see [`data_folder`].
    DataFolder,
    /// The `.venv` of the current folder.
    CurrentFolder,
    /// The folders where the system looks.
    System,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller => "the caller",
            Self::Variable => "`ORT_DYLIB_PATH`",
            Self::Program => "a `.venv` of the program's folders",
            Self::Prefix => "the prefix of the program",
            Self::DataFolder => "this user's data folder",
            Self::CurrentFolder => "the `.venv` of the current folder",
            Self::System => "the system's folders",
        })
    }
}

/// A library that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `libonnxruntime.so`, in the package `onnxruntime`.
    OnnxRuntime,
    /// `libopenvino_c.so` with its plugins beside it, in the package `openvino`.
    OpenVino,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::OpenVino => "OpenVINO",
        })
    }
}

impl Library {
    /// The oldest version that will do.
    pub(crate) fn min_version(self) -> &'static str {
        match self {
            // The level of its interface that `ort` is built for.
            Self::OnnxRuntime => "1.24",
            // Earlier ones count the types of numbers otherwise, see the crate `openvino-sys`.
            Self::OpenVino => "2025.1",
        }
    }

    /// The library of a virtual environment or of the data folder, where it has one.
    pub fn find_in_venv(self, venv: &Path) -> Option<PathBuf> {
        // Debian calls its own packages `dist-packages`.
        let pythons = entries(&venv.join("lib"))
            .into_iter()
            .flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]);
        let (native, below) = match self {
            Self::OnnxRuntime => (NATIVE, "onnxruntime/capi"),
            Self::OpenVino => (NATIVE_OPENVINO, "openvino/libs"),
        };
        // Where `make` and `topicmill setup` put it, and where Windows has its packages.
        let others = [venv.join(native), venv.join("Lib").join("site-packages")];
        pythons
            .chain(others)
            .find_map(|site| self.find_in_folder(&site.join(below)))
    }

    fn find_in_folder(self, folder: &Path) -> Option<PathBuf> {
        let mut files = entries(folder);
        files.retain(|path| {
            self.matches_name(&path.file_name().unwrap_or_default().to_string_lossy())
        });
        // Of several versions, the last of the sorted names: the one with its number written out.
        files.pop()
    }

    fn matches_name(self, name: &str) -> bool {
        let (unix, windows) = match self {
            // `libonnxruntime_providers_shared.so` lies beside it.
            Self::OnnxRuntime => ("libonnxruntime.", "onnxruntime.dll"),
            Self::OpenVino => ("libopenvino_c.", "openvino_c.dll"),
        };
        let rest = name.strip_prefix(unix);
        name == windows
            || rest.is_some_and(|rest| rest.starts_with("so") || rest.ends_with("dylib"))
    }

    /// What may mean something to the system's loader.
    fn system_names(self) -> Vec<PathBuf> {
        match self {
            Self::OnnxRuntime => system_names(),
            // No distribution gives it a name without a version, so it is looked for in the folders of all users.
            Self::OpenVino => OPENVINO_FOLDERS
                .iter()
                .filter_map(|folder| self.find_in_folder(Path::new(folder)))
                .chain(match std::env::consts::OS {
                    "windows" => Some(PathBuf::from("openvino_c.dll")),
                    "macos" => Some(PathBuf::from("libopenvino_c.dylib")),
                    _ => Some(PathBuf::from("libopenvino_c.so")),
                })
                .collect(),
        }
    }
}

/// Where the packages of Debian, Fedora, Homebrew and OpenVINO's own archives put the library.
const OPENVINO_FOLDERS: [&str; 9] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/opt/intel/openvino/runtime/lib/intel64",
    "/opt/intel/openvino/runtime/lib/aarch64",
    "/opt/homebrew/lib",
    "/opt/intel/openvino/runtime/lib/arm64/Release",
];

/// A place where the library may be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Location {
    /// Somebody said so: it must be there.
    Explicit { path: PathBuf, by: FoundBy },
    /// Found in a virtual environment.
    Found { path: PathBuf, by: FoundBy },
    /// Not found; these names may mean something to the system.
    System(Vec<PathBuf>),
}

/// From where a library is looked for.
#[derive(Debug, Clone, Default)]
struct SearchRoots {
    program: Option<PathBuf>,
    /// This user's data folder.
    data: Option<PathBuf>,
    /// The current folder.
    here: Option<PathBuf>,
}

/// Where this user's libraries and models lie for programs of this crate: `topicmill` in `XDG_DATA_HOME`, or else in
/// `~/.local/share` (XDG Base Directory Specification). `None` where neither variable names an absolute folder.
pub fn data_folder() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from)?;
        value.is_absolute().then_some(value)
    };
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")))?;
    Some(data.join("topicmill"))
}

/// Where libraries lie for all users of an installed program: `lib/topicmill` beside the folder `bin` that it lies in.
/// `None` where it lies in no such folder.
pub fn system_folder(program: &Path) -> Option<PathBuf> {
    Some(prefix_of(program)?.join("lib").join("topicmill"))
}

/// The folder that holds the folder `bin` of a program.
pub fn prefix_of(program: &Path) -> Option<&Path> {
    let bin = program.parent()?;
    let name = bin.file_name()?;
    (name == "bin" || name == "Scripts").then(|| bin.parent())?
}

impl SearchRoots {
    fn of_this_process() -> Self {
        Self {
            program: std::env::current_exe().and_then(fs::canonicalize).ok(),
            data: data_folder(),
            here: std::env::current_dir().ok(),
        }
    }
}

/// Where to load a library from: `asked` is what the caller names, `variable` the value of a variable that names it
/// (`ORT_DYLIB_PATH`). Also told is each library that was passed over, with why.
fn locate(
    library: Library,
    asked: Option<&Path>,
    variable: Option<OsString>,
    start: &SearchRoots,
) -> (Location, Vec<String>) {
    let told = |path: PathBuf, by| (Location::Explicit { path, by }, Vec::new());
    if let Some(path) = asked.filter(|path| !path.as_os_str().is_empty()) {
        return told(path.to_owned(), FoundBy::Caller);
    }
    if let Some(path) = variable.filter(|path| !path.is_empty()) {
        return told(path.into(), FoundBy::Variable);
    }
    // Whoever owns the program decides anyway what runs.
    let owner = start.program.as_deref().and_then(owner::owner_of);
    let program = start.program.iter().flat_map(|program| {
        let folders = program.ancestors().skip(1).take(PROGRAM_ANCESTORS);
        folders.map(move |folder| (folder.join(".venv"), owner, FoundBy::Program))
    });
    let prefix = start.program.iter().flat_map(|program| {
        let folders = [
            prefix_of(program).map(Path::to_owned),
            system_folder(program),
        ];
        folders.into_iter().flatten()
    });
    let prefix = prefix.map(|prefix| (prefix, owner, FoundBy::Prefix));
    let data = start.data.iter();
    let data = data.map(|data| (data.clone(), None, FoundBy::DataFolder));
    let here = start.here.iter();
    let here = here.map(|here| (here.join(".venv"), None, FoundBy::CurrentFolder));
    let mut passed_over = Vec::new();
    for (folder, owner, by) in program.chain(prefix).chain(data).chain(here) {
        let Some(path) = library.find_in_venv(&folder) else {
            continue;
        };
        match owner::untrusted_reason_allowing(&path, owner) {
            None => return (Location::Found { path, by }, passed_over),
            Some(why) => {
                passed_over.push(format!("`{}` was not taken, since {why}", path.display()));
            }
        }
    }
    (Location::System(library.system_names()), passed_over)
}

/// Loads a library from its [`place`] for this process; `load` says how. Gives what was loaded, from which file, and why
/// that one.
pub(crate) fn locate_and_load<T>(
    library: Library,
    asked: Option<&Path>,
    variable: Option<OsString>,
    load: impl Fn(&Path) -> Result<T, OnnxError>,
) -> Result<(T, PathBuf, FoundBy), OnnxError> {
    let (place, passed_over) = locate(library, asked, variable, &SearchRoots::of_this_process());
    for other in &passed_over {
        tracing::warn!("{other}; name it yourself if you trust it");
    }
    let names = match place {
        Location::Explicit { path, by } if !path.is_file() => {
            return Err(OnnxError::Missing { library, path, by });
        }
        Location::Explicit { path, by } | Location::Found { path, by } => {
            return Ok((load(&path)?, path, by));
        }
        Location::System(names) => names,
    };
    let mut tried = passed_over;
    for name in names {
        match load(&name) {
            Ok(loaded) => return Ok((loaded, name, FoundBy::System)),
            Err(OnnxError::Load { detail, .. }) => tried.push(detail),
            Err(error) => tried.push(error.to_string()),
        }
    }
    let tried = tried.join("; ");
    Err(OnnxError::NotFound { library, tried })
}

/// A library that does not load: it is no such library, or the memory is short.
pub(crate) fn load_error(library: Library, path: &Path, detail: String) -> OnnxError {
    let path = path.to_owned();
    if is_out_of_memory(&detail) {
        OnnxError::Memory(path, detail)
    } else {
        OnnxError::Load {
            library,
            path,
            detail,
        }
    }
}

/// The folder in a virtual environment, or in the data folder, that holds only the packages that bring the library.
pub const NATIVE: &str = "native";
/// The same for OpenVINO: either is fetched and replaced without the other.
pub const NATIVE_OPENVINO: &str = "native-openvino";

/// Where NVIDIA's wheels keep their libraries, beside the wheel that `library` came in: no loader looks there.
pub(crate) fn nvidia_folders(library: &Path) -> Vec<PathBuf> {
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

    const ORT: Library = Library::OnnxRuntime;

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn what_the_user_says_comes_first() {
        let told = |path: &str, by| Location::Explicit {
            path: path.into(),
            by,
        };
        let nowhere = SearchRoots::default();
        let (setting, _) = locate(
            ORT,
            Some(Path::new("/a.so")),
            Some("/b.so".into()),
            &nowhere,
        );
        assert_eq!(setting, told("/a.so", FoundBy::Caller));
        let (variable, _) = locate(ORT, Some(Path::new("")), Some("/b.so".into()), &nowhere);
        assert_eq!(variable, told("/b.so", FoundBy::Variable));
        let (system, _) = locate(ORT, None, Some(OsString::new()), &nowhere);
        assert!(matches!(system, Location::System(names) if !names.is_empty()));
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
    fn an_installed_program_finds_the_packages_of_its_prefix_and_then_those_of_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let (prefix, data) = (dir.path().join("prefix"), dir.path().join("data"));
        let program = touch(prefix.join("bin/topicmill"));
        let start = SearchRoots {
            program: Some(program),
            data: Some(data.clone()),
            here: None,
        };
        let found = || locate(ORT, None, None, &start).0;
        assert!(matches!(found(), Location::System(_)), "{:?}", found());
        let name = "onnxruntime/capi/libonnxruntime.so.1.31.1";
        let users = touch(data.join(NATIVE).join(name));
        let by = FoundBy::DataFolder;
        assert_eq!(found(), Location::Found { path: users, by });
        let by = FoundBy::Prefix;
        let system = touch(prefix.join("lib/topicmill").join(NATIVE).join(name));
        assert_eq!(found(), Location::Found { path: system, by });
        let beside = touch(prefix.join("lib/python3/dist-packages").join(name));
        assert_eq!(found(), Location::Found { path: beside, by });
    }

    #[test]
    fn openvino_is_found_where_onnx_runtime_is_and_neither_is_taken_for_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let start = SearchRoots {
            data: Some(data.clone()),
            ..SearchRoots::default()
        };
        let found = |library| locate(library, None, None, &start).0;
        let by = FoundBy::DataFolder;
        let libs = data.join(NATIVE_OPENVINO).join("openvino/libs");
        touch(libs.join("libopenvino.so.2641"));
        touch(libs.join("libopenvino_onnx_frontend.so.2641"));
        assert!(matches!(found(Library::OpenVino), Location::System(_)));
        let path = touch(libs.join("libopenvino_c.so.2641"));
        assert!(matches!(found(ORT), Location::System(_)));
        assert_eq!(found(Library::OpenVino), Location::Found { path, by });
    }
}
