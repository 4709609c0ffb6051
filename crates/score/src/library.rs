//! Finds and loads the shared library of ONNX Runtime or OpenVINO.
//!
//! ONNX Runtime is a library of some 30 MB (several hundred with CUDA) that comes in a Python wheel, so it is neither
//! linked nor shipped. The search order is: the path from the caller, `ORT_DYLIB_PATH` (ONNX Runtime only), a `.venv`
//! next to the program or in its repository, the Python packages in the program's prefix (`PREFIX/bin/topicmill` and
//! `PREFIX/lib/python3.12/site-packages`: a virtual environment, `pip install --user`, or the system),
//! `PREFIX/lib/topicmill`, this user's data folder, the `.venv` of the current folder, and the system's library path.
//!
//! The library runs with this process's privileges. A file that another user could have placed in one of these folders
//! is therefore not loaded, and the parents of the current folder are not searched.

mod load;
mod owner;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use self::load::{LoadOnce, locate_and_load};
pub use self::owner::untrusted_reason;
use topicmill_core::string_enum;

/// Number of the program's parent folders to search; `target/TRIPLE/debug/deps` is four levels below the repository.
pub const PROGRAM_ANCESTORS: usize = 5;

string_enum! {
    /// The origins of a library path.
    FoundBy {
        /// The caller's option.
        Caller = "the caller",
        /// The environment variable.
        Variable = "`ORT_DYLIB_PATH`",
        /// A `.venv` next to the program or in its repository.
        Program = "a `.venv` in the program's folders",
        /// The program's Python packages, or [`system_folder`].
        Prefix = "the program's prefix",
        /// See [`data_folder`].
        DataFolder = "this user's data folder",
        /// The `.venv` of the current folder.
        CurrentFolder = "the `.venv` of the current folder",
        /// The system's library path.
        System = "the system's folders",
    }
}

string_enum! {
    /// The inference libraries.
    Library {
        /// `libonnxruntime.so`, in the `onnxruntime` package.
        OnnxRuntime = "ONNX Runtime",
        /// `libopenvino_c.so` with its plugins next to it, in the `openvino` package.
        OpenVino = "OpenVINO",
    }
}

impl Library {
    /// Returns the minimum supported version.
    pub(crate) fn min_version(self) -> &'static str {
        match self {
            // The API level that `ort` is built for.
            Self::OnnxRuntime => "1.24",
            // Earlier versions number the element types differently; see the `openvino-sys` crate.
            Self::OpenVino => "2025.1",
        }
    }

    /// Returns the subfolder of a virtual environment or data folder that has only this library's packages, so that each
    /// library can be replaced without the other.
    pub fn native_folder(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "native",
            Self::OpenVino => "native-openvino",
        }
    }

    /// Returns the library's folder in a folder of Python packages.
    pub fn package_folder(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime/capi",
            Self::OpenVino => "openvino/libs",
        }
    }

    /// Returns the library below a virtual environment, a prefix or a data folder, if it has one.
    pub fn find_below(self, folder: &Path) -> Option<PathBuf> {
        // Debian uses `dist-packages` for its own packages.
        let pythons = entries(&folder.join("lib"))
            .into_iter()
            .flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]);
        // `make` and `topicmill setup` install into this folder.
        let native = folder.join(self.native_folder());
        pythons
            .chain([native])
            .find_map(|site| self.find_in_folder(&site.join(self.package_folder())))
    }

    fn find_in_folder(self, folder: &Path) -> Option<PathBuf> {
        let files = entries(folder).into_iter().filter_map(|path| {
            let name = path.file_name()?.to_string_lossy();
            let numbers = name.split('.').filter_map(|part| part.parse().ok());
            let version: Vec<u32> = numbers.collect();
            self.matches_name(&name).then_some((version, path))
        });
        // Of `.so`, `.so.1` and `.so.1.31.1`, the last contains the complete version number.
        files.max().map(|(_, path)| path)
    }

    fn matches_name(self, name: &str) -> bool {
        let rest = name.strip_prefix(match self {
            // The dot excludes `libonnxruntime_providers_shared.so`, which is in the same folder.
            Self::OnnxRuntime => "libonnxruntime.",
            Self::OpenVino => "libopenvino_c.",
        });
        rest.is_some_and(|rest| rest.starts_with("so") || rest.ends_with("dylib"))
    }

    /// Returns names to try with the system's loader.
    fn system_names(self) -> Vec<PathBuf> {
        let names: &[&str] = match (self, cfg!(target_os = "macos")) {
            (Self::OnnxRuntime, true) => &[
                "libonnxruntime.dylib",
                "/opt/homebrew/lib/libonnxruntime.dylib",
                "/usr/local/lib/libonnxruntime.dylib",
            ],
            (Self::OnnxRuntime, false) => &["libonnxruntime.so", "libonnxruntime.so.1"],
            (Self::OpenVino, true) => &["libopenvino_c.dylib"],
            (Self::OpenVino, false) => &["libopenvino_c.so"],
        };
        names.iter().map(PathBuf::from).collect()
    }
}

/// Result of a search.
#[derive(Debug)]
struct Search {
    location: Location,
    /// A message for each library that was found but is not trusted.
    untrusted: Vec<String>,
}

/// Location of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Location {
    /// Given by the caller or the environment variable; the file must exist.
    Explicit { path: PathBuf, by: FoundBy },
    /// Found in a searched folder.
    Found { path: PathBuf, by: FoundBy },
    /// Not found; names to try with the system's loader.
    System(Vec<PathBuf>),
}

/// Starting points of the search.
#[derive(Debug, Clone, Default)]
struct SearchRoots {
    program: Option<PathBuf>,
    /// This user's data folder.
    data: Option<PathBuf>,
    /// The current folder.
    here: Option<PathBuf>,
}

/// Returns this user's folder for libraries and models: `topicmill` in `XDG_DATA_HOME` or, failing that, in
/// `~/.local/share` (XDG Base Directory Specification). `None` if neither variable is an absolute path.
pub fn data_folder() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from)?;
        value.is_absolute().then_some(value)
    };
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")))?;
    Some(data.join("topicmill"))
}

/// Returns the system-wide library folder of an installed program: `lib/topicmill` next to the program's `bin` folder.
/// `None` if the program is not in a `bin` folder.
pub fn system_folder(program: &Path) -> Option<PathBuf> {
    Some(prefix_of(program)?.join("lib").join("topicmill"))
}

/// Returns the parent of the program's `bin` folder.
pub fn prefix_of(program: &Path) -> Option<&Path> {
    let bin = program.parent()?;
    (bin.file_name()? == "bin").then(|| bin.parent())?
}

/// A folder to search.
struct SearchFolder {
    path: PathBuf,
    /// A user whose files are trusted, besides this user and root.
    owner: Option<u32>,
    by: FoundBy,
}

impl SearchRoots {
    fn of_this_process() -> Self {
        Self {
            program: std::env::current_exe().and_then(fs::canonicalize).ok(),
            data: data_folder(),
            here: std::env::current_dir().ok(),
        }
    }

    /// Returns the folders to search, in order.
    fn folders(&self) -> Vec<SearchFolder> {
        let mut folders = Vec::new();
        let mut add = |path, owner, by| folders.push(SearchFolder { path, owner, by });
        if let Some(program) = &self.program {
            // The owner of the program decides what it does anyway.
            let owner = owner::owner_of(program);
            for folder in program.ancestors().skip(1).take(PROGRAM_ANCESTORS) {
                add(folder.join(".venv"), owner, FoundBy::Program);
            }
            let prefix = prefix_of(program).map(Path::to_owned);
            for folder in prefix.into_iter().chain(system_folder(program)) {
                add(folder, owner, FoundBy::Prefix);
            }
        }
        if let Some(data) = &self.data {
            add(data.clone(), None, FoundBy::DataFolder);
        }
        if let Some(here) = &self.here {
            add(here.join(".venv"), None, FoundBy::CurrentFolder);
        }
        folders
    }
}

/// Searches for a library. `asked` is the caller's path, and `variable` is the value of `ORT_DYLIB_PATH`.
fn locate(
    library: Library,
    asked: Option<&Path>,
    variable: Option<OsString>,
    roots: &SearchRoots,
) -> Search {
    let asked = asked.filter(|path| !path.as_os_str().is_empty());
    let asked = asked.map(|path| (path.to_owned(), FoundBy::Caller));
    let variable = variable.filter(|path| !path.is_empty());
    let variable = variable.map(|path| (PathBuf::from(path), FoundBy::Variable));
    let mut untrusted = Vec::new();
    let location = match asked.or(variable) {
        Some((path, by)) => Location::Explicit { path, by },
        None => find(library, roots, &mut untrusted)
            .unwrap_or_else(|| Location::System(library.system_names())),
    };
    Search {
        location,
        untrusted,
    }
}

/// Returns the first trusted library in the folders to search, and adds a message for each other one before it.
fn find(library: Library, roots: &SearchRoots, untrusted: &mut Vec<String>) -> Option<Location> {
    for SearchFolder { path, owner, by } in roots.folders() {
        let Some(path) = library.find_below(&path) else {
            continue;
        };
        match owner::untrusted_reason_allowing(&path, owner) {
            None => return Some(Location::Found { path, by }),
            Some(why) => {
                let path = path.display();
                untrusted.push(format!("`{path}` was not loaded, because {why}"));
            }
        }
    }
    None
}

/// Returns the entries of a folder, sorted; empty if it cannot be read.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
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
    fn explicit_paths_take_precedence() {
        let explicit = |path: &str, by| Location::Explicit {
            path: path.into(),
            by,
        };
        let nowhere = SearchRoots::default();
        let locate = |asked, variable| locate(ORT, asked, variable, &nowhere).location;
        let setting = locate(Some(Path::new("/a.so")), Some("/b.so".into()));
        assert_eq!(setting, explicit("/a.so", FoundBy::Caller));
        let variable = locate(Some(Path::new("")), Some("/b.so".into()));
        assert_eq!(variable, explicit("/b.so", FoundBy::Variable));
        let system = locate(None, Some(OsString::new()));
        assert!(matches!(system, Location::System(names) if !names.is_empty()));
    }

    #[test]
    fn the_prefix_is_searched_before_the_data_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (prefix, data) = (dir.path().join("prefix"), dir.path().join("data"));
        let program = touch(prefix.join("bin/topicmill"));
        let roots = SearchRoots {
            program: Some(program),
            data: Some(data.clone()),
            here: None,
        };
        let found = || locate(ORT, None, None, &roots).location;
        assert!(matches!(found(), Location::System(_)), "{:?}", found());
        let name = "onnxruntime/capi/libonnxruntime.so.1.31.1";
        let users = touch(data.join(ORT.native_folder()).join(name));
        touch(users.with_file_name("libonnxruntime.so.1.9.0"));
        let by = FoundBy::DataFolder;
        assert_eq!(found(), Location::Found { path: users, by });
        let by = FoundBy::Prefix;
        let system = touch(prefix.join("lib/topicmill/native").join(name));
        assert_eq!(found(), Location::Found { path: system, by });
        let packages = touch(prefix.join("lib/python3/dist-packages").join(name));
        assert_eq!(found(), Location::Found { path: packages, by });
    }

    #[test]
    fn openvino_and_onnx_runtime_are_not_confused() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let roots = SearchRoots {
            data: Some(data.clone()),
            ..SearchRoots::default()
        };
        let found = |library| locate(library, None, None, &roots).location;
        let by = FoundBy::DataFolder;
        let libs = data.join("native-openvino/openvino/libs");
        touch(libs.join("libopenvino.so.2641"));
        touch(libs.join("libopenvino_onnx_frontend.so.2641"));
        assert!(matches!(found(Library::OpenVino), Location::System(_)));
        let path = touch(libs.join("libopenvino_c.so.2641"));
        assert!(matches!(found(ORT), Location::System(_)));
        assert_eq!(found(Library::OpenVino), Location::Found { path, by });
    }
}
