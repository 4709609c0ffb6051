//! `topicmill schedule install`

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::entries;
use super::units::{self, Place, Unit};
use crate::cli::output;
use crate::cli::setup::{PipelineFlags, Setup};
use crate::cli::{CliError, Exit};
use crate::config::Origin;
use crate::placing::{Standing, beside, place};

/// Flags of `schedule install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill schedule install --systemd --pipeline my-topics.toml\n\
\x20 topicmill schedule install --systemd --stay --user topicmill --to units\n\
\x20 topicmill schedule install --cron\n\n\
docs/scheduling.md says where each file goes.")]
#[command(group(ArgGroup::new("what").required(true).args(["systemd", "cron", "k8s", "launchd"])))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four of them exclude each other, as clap has it"
)]
pub struct Install {
    /// Print a timer and a service for each schedule
    #[arg(long)]
    systemd: bool,
    /// Print a line for `crontab -e`, which runs each minute what is due
    #[arg(long)]
    cron: bool,
    /// Print a job of Kubernetes for each schedule, which comes at its times
    #[arg(long)]
    k8s: bool,
    /// Print an agent of launchd that stays
    #[arg(long)]
    launchd: bool,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// With --systemd, print one service that stays and runs all schedules, instead of timers
    #[arg(long, requires = "systemd")]
    stay: bool,
    /// Run in this folder [default: the current one; for Kubernetes /data]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Run as this user [default: whoever installs it]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cron", "k8s"])]
    user: Option<String>,
    /// Read environment variables from this file, such as `DATABASE_URL`; give it mode 600
    #[arg(long, value_name = "FILE", conflicts_with = "k8s")]
    env_file: Option<PathBuf>,
    /// With --k8s, run this image
    #[arg(
        long,
        value_name = "IMAGE",
        default_value = "topicmill:latest",
        requires = "k8s"
    )]
    image: String,
    /// Write the files to this folder instead of printing them; if one of them is there already, none is written
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl Install {
    pub fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let entries = entries(setup, &self.pipeline, &[])?;
        let place = self.place(setup)?;
        let units = if self.stay {
            units::systemd_service(&place)
        } else if self.systemd {
            units::systemd_timers(&entries, &place)
        } else if self.cron {
            units::crontab(&place)
        } else if self.k8s {
            units::kubernetes(&entries, &place)
        } else {
            units::launchd(&place)
        };
        match &self.to {
            Some(folder) => write(&units, folder)?,
            None => print(&units)?,
        }
        Ok(Exit::Done)
    }

    fn place(&self, setup: &Setup) -> Result<Place, CliError> {
        let in_container = self.k8s;
        let file = |path: &Path| {
            if in_container {
                return one_line(path);
            }
            one_line(&absolute(path)?)
        };
        let folder = match &self.folder {
            Some(folder) => file(folder)?,
            None if in_container => "/data".to_owned(),
            None => file(Path::new("."))?.trim_end_matches("/.").to_owned(),
        };
        let program = std::env::current_exe().unwrap_or_else(|_| "topicmill".into());
        // In a container, a settings file of the folder is found there. Elsewhere it is named: another folder may be given,
        // and the user of the unit may not be its owner.
        let is_named = |(_, origin): &(String, Origin)| match origin {
            Origin::File(path) => Some(path.clone()),
            _ => None,
        };
        let config = setup.loaded.values.values().find_map(is_named);
        let is_found = |path: &PathBuf| in_container && path == Path::new(crate::config::FILE_NAME);
        let config = config.filter(|path| !is_found(path));
        let mut global = Vec::new();
        if let Some(config) = config {
            global.extend(["--config".to_owned(), file(&config)?]);
        }
        if setup
            .loaded
            .values
            .get("database.url")
            .is_some_and(|(_, origin)| *origin == Origin::Flag)
        {
            tracing::warn!(
                "--database is not written into units, because it may hold a password: set `database.url` in \
                 topicmill.toml, or DATABASE_URL in the file of --env-file"
            );
        }
        Ok(Place {
            program: one_line(&program)?,
            global,
            pipeline: self.pipeline.pipeline.as_deref().map(&file).transpose()?,
            folder,
            user: self.user.clone(),
            env_file: self.env_file.as_deref().map(&file).transpose()?,
            image: self.image.clone(),
        })
    }
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path)
        .map_err(|error| CliError::Usage(format!("find `{}`: {error}", path.display())))
}

/// A path as text of one line, which every unit takes.
fn one_line(path: &Path) -> Result<String, CliError> {
    path.to_str()
        .filter(|text| !text.contains(char::is_control))
        .map(str::to_owned)
        .ok_or_else(|| {
            CliError::Usage(format!(
                "`{}` has letters that no unit takes: rename it",
                path.display()
            ))
        })
}

fn print(units: &[Unit]) -> Result<(), CliError> {
    if let [unit] = units {
        return output::write(&unit.text);
    }
    let texts: Vec<String> = units
        .iter()
        .map(|unit| format!("# {}\n{}", unit.name, unit.text))
        .collect();
    output::write(&texts.join("\n"))
}

fn write(units: &[Unit], folder: &Path) -> Result<(), CliError> {
    let not_written = |path: &Path| {
        let path = path.to_owned();
        move |source| CliError::unwritten(&path, source, "name another folder with --to")
    };
    let exists = |path: &Path| {
        CliError::Usage(format!(
            "`{}` exists, and `schedule install` replaces nothing: delete it, or name another folder with --to",
            path.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(not_written(folder))?;
    // The first gets its name after the last is written, so that a full disk leaves none of them.
    let mut drafts = Vec::with_capacity(units.len());
    for unit in units {
        let path = folder.join(&unit.name);
        if path.symlink_metadata().is_ok() {
            return Err(exists(&path));
        }
        let mut draft = beside(&path).map_err(not_written(&path))?;
        draft
            .write_all(unit.text.as_bytes())
            .and_then(|()| draft.as_file().sync_all())
            .map_err(not_written(&path))?;
        drafts.push((draft, path));
    }
    for (draft, path) in drafts {
        place(draft, &path, Standing::Kept).map_err(|source| match source.kind() {
            // Somebody else made it meanwhile.
            ErrorKind::AlreadyExists => exists(&path),
            _ => not_written(&path)(source),
        })?;
        tracing::info!(file = %path.display(), "written");
    }
    Ok(())
}
