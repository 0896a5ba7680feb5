//! Where things lie on the remote.

/// Absolute paths on the remote; their words were checked with the options.
#[derive(Debug)]
pub struct Layout {
    /// Folder of everything but the unit.
    pub dir: String,
    /// The program.
    pub binary: String,
    /// The model, where one is deployed.
    pub model: Option<String>,
    /// The unit's file.
    pub unit: String,
}

impl Layout {
    /// Without a model.
    pub fn new(dir: &str, unit_dir: &str) -> Layout {
        Layout {
            dir: dir.to_owned(),
            binary: format!("{dir}/bin/kinglet"),
            model: None,
            unit: format!("{unit_dir}/{}", super::unit::NAME),
        }
    }

    /// Folder of the program.
    pub fn bin(&self) -> String {
        format!("{}/bin", self.dir)
    }

    /// Folder of the models.
    pub fn models(&self) -> String {
        format!("{}/models", self.dir)
    }
}

/// Temporary name beside `file`. It has the content's hash: two deploys of different things do not
/// meet, and a part that is found again is a part of the same thing.
pub fn temporary(file: &str, sha256: &str) -> String {
    format!("{file}.{}.part", &sha256[..sha256.len().min(16)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_lie_beside_the_file() {
        let layout = Layout::new("/opt/kinglet", "/etc/systemd/system");
        assert_eq!(layout.unit, "/etc/systemd/system/kinglet.service");
        let name = temporary(&layout.binary, &"ab".repeat(32));
        assert_eq!(name, "/opt/kinglet/bin/kinglet.abababababababab.part");
        assert_ne!(name, temporary(&layout.binary, &"ac".repeat(32)));
    }
}
