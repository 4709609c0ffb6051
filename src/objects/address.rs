//! Addresses of objects: `s3://bucket/key`, `gs://`, `az://`, `abfss://`, `hf://datasets/owner/name@revision/path`.

use std::fmt;

use super::ObjectError;

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// S3, and what speaks as it does.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// Data sets of the Hugging Face hub.
    Hf,
}

/// Where an object, or what begins with a name, lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The kind of store.
    pub scheme: Scheme,
    /// Bucket or container; `datasets/owner/name@revision` of a data set.
    pub container: String,
    /// The account of Azure, where the address names it.
    pub account: Option<String>,
    /// What comes behind it, without a slash at either end; may be a pattern.
    pub key: String,
    /// Whether a slash stood at the end, so that it is no object.
    pub is_folder: bool,
    start: String,
}

impl Address {
    /// Whether a text has the form of an address, be it a good one or not. `file://` is none: it names a file of this
    /// machine.
    pub fn is_one(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| {
            let starts = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
            starts && scheme.len() > 1 && scheme.chars().all(is_scheme) && scheme != "file"
        })
    }

    /// Reads an address.
    ///
    /// # Errors
    /// [`ObjectError::Address`].
    pub fn parse(text: &str) -> Result<Self, ObjectError> {
        let bad = |why: &str| ObjectError::Address {
            address: harmless(text),
            why: why.to_owned(),
        };
        let (name, rest) = text
            .split_once("://")
            .ok_or_else(|| bad("it has no `://`"))?;
        let scheme = match name {
            "s3" | "s3a" => Scheme::S3,
            "gs" | "gcs" => Scheme::Gs,
            "az" | "azure" | "abfs" | "abfss" => Scheme::Az,
            "hf" => Scheme::Hf,
            "http" | "https" => {
                return Err(bad("pages are not read; fetch the file, and give its name"));
            }
            _ => return Err(bad("write s3://, gs://, az://, abfss:// or hf://datasets/")),
        };
        let is_folder = rest.ends_with('/');
        let rest = rest.trim_end_matches('/');
        let (container, key) = if scheme == Scheme::Hf {
            data_set(rest).ok_or_else(|| bad("write it as hf://datasets/owner/name/path"))?
        } else {
            rest.split_once('/').unwrap_or((rest, ""))
        };
        let (container, account) = match container.split_once('@') {
            Some((container, host)) if scheme == Scheme::Az => {
                (container, Some(host.split('.').next().unwrap_or(host)))
            }
            Some(_) if scheme != Scheme::Hf => {
                return Err(bad(
                    "give credentials by the environment, not in the address",
                ));
            }
            _ => (container, None),
        };
        let is_name = |name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
            !name.is_empty() && name.chars().all(is_part)
        };
        if !is_name(container) || !account.is_none_or(is_name) {
            return Err(bad(
                "a bucket is named by letters, digits, `-`, `_` and `.`",
            ));
        }
        if key
            .split_once('?')
            .is_some_and(|(_, query)| query.contains('='))
        {
            return Err(bad(
                "an address has nothing behind a `?`; give credentials by the environment",
            ));
        }
        let is_step = |part: &str| matches!(part, "" | "." | "..");
        if !key.is_empty() && key.split('/').any(is_step) {
            return Err(bad("an empty part, `.` and `..` name nothing in a store"));
        }
        let start = text[..text.len() - usize::from(is_folder)].trim_end_matches('/');
        let start = start.strip_suffix(key).unwrap_or(start);
        Ok(Self {
            scheme,
            container: container.to_owned(),
            account: account.map(str::to_owned),
            key: key.to_owned(),
            is_folder,
            start: start.trim_end_matches('/').to_owned(),
        })
    }

    /// The address of another object in the same container, for people.
    pub fn shown(&self, key: &str) -> String {
        if key.is_empty() {
            return self.start.clone();
        }
        format!("{}/{key}", self.start)
    }

    /// Repository and revision of a data set.
    pub(super) fn repository(&self) -> (&str, Option<&str>) {
        let name = self
            .container
            .strip_prefix("datasets/")
            .unwrap_or(&self.container);
        match name.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (name, None),
        }
    }

    /// The key up to the folder before the first wild character, and the pattern behind it; none for a plain key.
    pub fn pattern(&self) -> Option<(&str, &str)> {
        let wild = self.key.find(['*', '?', '['])?;
        let cut = self.key[..wild].rfind('/');
        Some(match cut {
            Some(cut) => (&self.key[..cut], &self.key[cut + 1..]),
            None => ("", &self.key),
        })
    }
}

/// An address without what may be a secret: user and password, and what stands behind a `?` as `name=value`.
fn harmless(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let query = rest.find('?').filter(|at| rest[*at..].contains('='));
    let rest = query.map_or(rest, |at| &rest[..at]);
    let rest = rest
        .rsplit_once('@')
        .filter(|_| scheme != "hf")
        .map_or(rest, |(_, rest)| rest);
    format!("{scheme}://{rest}")
}

/// Cuts `datasets/owner/name@revision` from what is behind it. The hub writes a slash of a revision as `%2F`.
fn data_set(rest: &str) -> Option<(&str, &str)> {
    let name = rest.strip_prefix("datasets/")?;
    let owner = name.find('/')?;
    let end = name[owner + 1..].find('/').map(|end| owner + 1 + end);
    let end = "datasets/".len() + end.unwrap_or(name.len());
    let (container, key) = rest.split_at(end);
    let repo = name.split('@').next()?;
    (owner > 0 && repo.len() > owner + 1).then_some((container, key.trim_start_matches('/')))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, scheme, container, key) in [
            ("s3://b/in/*.parquet", Scheme::S3, "b", "in/*.parquet"),
            ("s3a://b", Scheme::S3, "b", ""),
            ("gs://b/a b.parquet", Scheme::Gs, "b", "a b.parquet"),
            ("az://c/x/", Scheme::Az, "c", "x"),
            (
                "hf://datasets/o/n/data/a.parquet",
                Scheme::Hf,
                "datasets/o/n",
                "data/a.parquet",
            ),
            ("hf://datasets/o/n@v1", Scheme::Hf, "datasets/o/n@v1", ""),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.scheme, &*address.container, &*address.key),
                (scheme, container, key)
            );
            assert_eq!(address.to_string(), text.trim_end_matches('/'));
        }
        let azure = Address::parse("abfss://c@account.dfs.core.windows.net/x").unwrap();
        assert_eq!(azure.account.as_deref(), Some("account"));
        assert_eq!(azure.shown("y"), "abfss://c@account.dfs.core.windows.net/y");
        assert_eq!(
            Address::parse("hf://datasets/o/n@v1/x")
                .unwrap()
                .repository(),
            ("o/n", Some("v1"))
        );
    }

    #[test]
    fn what_names_nothing_is_refused_without_its_secret() {
        for text in [
            "s3://",
            "s3:///key",
            "s3://me:hunter2@b/key",
            "s3://b/a//c",
            "s3://b/../c",
            "hf://models/o/n/x",
            "hf://datasets/o",
            "ftp://b/c",
            "https://me:hunter2@host/x.parquet",
        ] {
            assert!(Address::is_one(text), "{text}");
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        for text in ["a.parquet", "file:///x", "C://x", "-", "a b://c"] {
            assert!(!Address::is_one(text), "{text}");
        }
    }

    #[test]
    fn a_pattern_begins_in_a_folder() {
        let of = |text: &str| {
            let address = Address::parse(text).unwrap();
            address
                .pattern()
                .map(|(folder, wild)| (folder.to_owned(), wild.to_owned()))
        };
        assert_eq!(
            of("s3://b/in/x/*.parquet"),
            Some(("in/x".into(), "*.parquet".into()))
        );
        assert_eq!(
            of("s3://b/in/x-?/**/a"),
            Some(("in".into(), "x-?/**/a".into()))
        );
        assert_eq!(of("s3://b/*"), Some((String::new(), "*".into())));
        assert_eq!(of("s3://b/in/x"), None);
    }
}
