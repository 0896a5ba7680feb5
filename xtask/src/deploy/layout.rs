//! Where things lie on the remote.

use super::options::model_name;
use std::path::Path;

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
    /// The service's flags, which are the user's.
    pub conf: String,
}

impl Layout {
    /// Without a model.
    pub fn new(dir: &str, unit_dir: &str) -> Layout {
        Layout {
            dir: dir.to_owned(),
            binary: format!("{dir}/bin/kinglet"),
            model: None,
            unit: format!("{unit_dir}/{}", super::unit::NAME),
            conf: format!("{dir}/kinglet.conf"),
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

    /// The model that the remote's unit names, if it is one that we could have put there.
    pub fn kept_model(&self, named: &str) -> Option<String> {
        let name = Path::new(named.strip_prefix(&self.models())?.strip_prefix('/')?);
        let is_plain = name.components().count() == 1 && model_name(name).is_ok();
        is_plain.then(|| named.to_owned())
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

    #[test]
    fn a_model_is_kept_if_it_is_one_of_ours() {
        let layout = Layout::new("/opt/kinglet", "/etc/systemd/system");
        let good = "/opt/kinglet/models/a-b_1.gguf";
        assert_eq!(layout.kept_model(good).unwrap(), good);
        for bad in ["/opt/kinglet/models/", "/opt/kinglet/models", "/opt/other/models/a.gguf", "a.gguf", ""] {
            assert_eq!(layout.kept_model(bad), None, "{bad}");
        }
        for bad in ["$(id)", "a b", "../a", "b/a", ".a", "a;b", "%i", "a\"b"] {
            assert_eq!(layout.kept_model(&format!("/opt/kinglet/models/{bad}")), None, "{bad}");
        }
    }
}
