//! Rules for the workspace as a whole: dependencies, lints, changelog.
//!
//! Manifests are read line by line: ours are plain, and a TOML parser would be the
//! largest dependency of this crate.

use super::Finding;
use super::lists::CORE_DEPENDENCIES;

/// Gives the text of a file of the project.
type Files<'f, 'a> = &'f dyn Fn(&str) -> Option<&'a str>;

/// Checks all manifests against the rules, ARCHITECTURE.md and CHANGELOG.md.
pub fn check(files: Files<'_, '_>, found: &mut Vec<Finding>) {
    let root = files("Cargo.toml").unwrap_or("");
    let members = strings_of(root, "members");
    if members.is_empty() {
        found.push(Finding::new("Cargo.toml", 1, "no workspace members"));
    }
    let table = documented(files("ARCHITECTURE.md").unwrap_or(""));
    let mut used = Vec::new();
    // Crates that are workspaces of their own: nothing to inherit from, but no less to say for what they use.
    let excluded = strings_of(root, "exclude");
    for member in members.iter().chain(&excluded) {
        let path = format!("{member}/Cargo.toml");
        let Some(manifest) = files(&path) else {
            found.push(Finding::new(&path, 1, "the workspace member's manifest is missing"));
            continue;
        };
        if members.contains(member) && !inherits_lints(manifest) {
            found.push(Finding::new(&path, 1, "must inherit the lints: [lints] workspace = true"));
        }
        for dependency in dependencies(manifest) {
            if dependency.name.starts_with("kinglet") {
                continue;
            }
            if member == "core" && !dependency.dev && !CORE_DEPENDENCIES.contains(&&*dependency.name) {
                let message = format!("kinglet-core must not depend on {}", dependency.name);
                found.push(Finding::new(&path, dependency.line, message));
            }
            if !table.contains(&dependency.name) {
                let message = format!("{} is not in ARCHITECTURE.md's table", dependency.name);
                found.push(Finding::new(&path, dependency.line, message));
            }
            used.push(dependency.name);
        }
    }
    for name in table.iter().filter(|name| !used.contains(name)) {
        let message = format!("names {name}, which nothing depends on");
        found.push(Finding::new("ARCHITECTURE.md", 1, message));
    }
    changelog(files("CHANGELOG.md"), root, found);
}

/// A direct dependency.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    line: usize,
    /// For tests only.
    dev: bool,
}

/// The dependencies of a manifest, target-specific ones included.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut all = Vec::new();
    // Inside a dependency section, whether it is one for tests.
    let mut section = None;
    for (i, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_start_matches('[').split(']').next().unwrap_or("").trim();
            // Quoted parts of target sections may contain dots; the section's kind never does.
            let (table, name) = match header.rsplit_once('.') {
                Some((table, name)) if !name.ends_with("dependencies") => (table, Some(name)),
                _ => (header, None),
            };
            let kind = table.rsplit('.').next().unwrap_or("");
            let dev = match kind {
                "dependencies" | "build-dependencies" => Some(false),
                "dev-dependencies" => Some(true),
                _ => None,
            };
            match (dev, name) {
                (Some(dev), Some(name)) => {
                    all.push(Dependency { name: unquoted(name), line: i + 1, dev });
                    section = None;
                }
                _ => section = dev,
            }
            continue;
        }
        let Some((dev, (key, value))) = section.zip(line.split_once('=')) else {
            continue;
        };
        if line.starts_with('#') {
            continue;
        }
        // `name.workspace = true` and `name = { package = "real", .. }`.
        let key = unquoted(key.trim().split('.').next().unwrap_or(""));
        let name = value.split_once("package").and_then(|(_, p)| p.split('"').nth(1));
        all.push(Dependency { name: name.map_or(key, str::to_owned), line: i + 1, dev });
    }
    all
}

fn unquoted(name: &str) -> String {
    name.trim().trim_matches(['"', '\'']).to_owned()
}

/// Whether `[lints]` says `workspace = true`.
fn inherits_lints(manifest: &str) -> bool {
    let lines: Vec<String> = manifest.lines().map(|l| l.replace(' ', "")).collect();
    let start = lines.iter().position(|l| l == "[lints]");
    let section = start.map_or(&[][..], |s| &lines[s + 1..]);
    let own: Vec<&String> = section.iter().take_while(|l| !l.starts_with('[')).collect();
    own.iter().any(|l| *l == "workspace=true") || lines.iter().any(|l| l == "lints.workspace=true")
}

/// The strings of `key = ["a", "b"]`, on one line or several.
fn strings_of(manifest: &str, key: &str) -> Vec<String> {
    let mut lines = manifest.lines();
    let is_key = |l: &&str| l.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    let Some(first) = lines.find(is_key) else {
        return Vec::new();
    };
    let mut list = first.to_owned();
    while !list.contains(']') {
        let Some(next) = lines.next() else { break };
        list.push_str(next);
    }
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Crates named in the first column of the table under "Dependencies".
fn documented(architecture: &str) -> Vec<String> {
    let section = architecture.lines().skip_while(|l| l.trim() != "## Dependencies").skip(1);
    let rows = section.take_while(|l| !l.starts_with("## ")).filter(|l| l.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn changelog(text: Option<&str>, root_manifest: &str, found: &mut Vec<Finding>) {
    const FILE: &str = "CHANGELOG.md";
    let Some(text) = text else {
        found.push(Finding::new(FILE, 1, "missing"));
        return;
    };
    let version = root_manifest.lines().find_map(|l| l.strip_prefix("version = ")).map(unquoted);
    let version = version.unwrap_or_default();
    let headed = |name: &str| text.lines().any(|l| l.starts_with(&format!("## [{name}]")));
    if !headed("Unreleased") && !headed(&version) {
        found.push(Finding::new(FILE, 1, format!("no section [Unreleased] or [{version}]")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace]\nmembers = [\n  \"core\",\n]\n[workspace.package]\nversion = \"1.2.0\"\n";
    const CORE: &str = "[dependencies]\nlibm = \"1\"\n[lints]\nworkspace = true\n";
    const TABLE: &str =
        "# A\n## Dependencies\n\n| Crate | In |\n|---|---|\n| `libm` | core |\n## Next\n| `x` |\n";
    const LOG: &str = "## [Unreleased]\n";

    fn found(root: &str, core: &str, architecture: &str, log: &str) -> Vec<String> {
        let file = |path: &str| match path {
            "Cargo.toml" => Some(root),
            "core/Cargo.toml" => Some(core),
            "ARCHITECTURE.md" => Some(architecture),
            "CHANGELOG.md" => Some(log),
            _ => None,
        };
        let mut found = Vec::new();
        check(&file, &mut found);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_good_workspace_passes() {
        assert_eq!(found(ROOT, CORE, TABLE, LOG), [""; 0]);
        assert_eq!(found(ROOT, CORE, TABLE, "## [1.2.0] - 2026-01-01\n"), [""; 0]);
    }

    #[test]
    fn each_rule_fires() {
        let one = |found: Vec<String>, begin: &str, word: &str| {
            assert!(found.len() == 1 && found[0].starts_with(begin) && found[0].contains(word), "{found:?}");
        };
        let serde = CORE.replace("libm = \"1\"", "libm = \"1\"\nserde = \"1\"");
        let with_serde = TABLE.replace("`libm`", "`libm`, `serde`");
        one(found(ROOT, &serde, &with_serde, LOG), "core/Cargo.toml:3: ", "must not depend on serde");
        let dev = format!("{CORE}[dev-dependencies]\nserde = \"1\"\n");
        one(found(ROOT, &dev, TABLE, LOG), "core/Cargo.toml:6: ", "not in ARCHITECTURE.md");
        one(found(ROOT, CORE, &with_serde, LOG), "ARCHITECTURE.md:1: ", "serde");
        let no_lints = CORE.replace("[lints]", "[other]");
        one(found(ROOT, &no_lints, TABLE, LOG), "core/Cargo.toml:1: ", "lints");
        one(found(ROOT, CORE, TABLE, "## [1.1.0]\n"), "CHANGELOG.md:1: ", "1.2.0");
        let more = ROOT.replace("\"core\",", "\"core\", \"gone\"");
        one(found(&more, CORE, TABLE, LOG), "gone/Cargo.toml:1: ", "missing");
        let apart = ROOT.replace("[workspace.package]", "exclude = [\"gone\"]\n[workspace.package]");
        one(found(&apart, CORE, TABLE, LOG), "gone/Cargo.toml:1: ", "missing");
        assert!(found("", CORE, TABLE, LOG)[0].contains("no workspace members"));
    }

    #[test]
    fn all_ways_to_write_a_dependency() {
        let manifest = "\
[package]
name = \"x\"
[dependencies]
a = \"1\" # c = 2
# off = \"1\"
b.workspace = true
alias = { package = \"c\", version = \"1\" }
[dependencies.d]
version = \"1\"
[target.'cfg(target_os = \"a.b\")'.dependencies]
e = \"1\"
[build-dependencies]
f = \"1\"
[dev-dependencies]
g = { version = \"1\" }
[features]
h = []
";
        let found: Vec<String> = dependencies(manifest)
            .iter()
            .map(|d| format!("{}{}:{}", if d.dev { "dev " } else { "" }, d.name, d.line))
            .collect();
        assert_eq!(found, ["a:4", "b:6", "c:7", "d:8", "e:11", "f:13", "dev g:15"]);
    }
}
