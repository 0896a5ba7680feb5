//! Who may ask: keys, and pages of other sites. Must not know what is asked.
//!
//! Keys are compared by their BLAKE3 hashes, all of them each time, in a time that does not depend on where
//! they differ.

use super::error::ApiError;
use crate::failure::Failure;
use crate::ids::read_text;
use blake3::{Hash, Hasher};
use core::net::IpAddr;
use std::path::Path;

/// The keys of a server.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    users: Vec<Hash>,
    admin: Option<Hash>,
}

/// What a request says about who sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'r> {
    /// `Authorization`.
    pub authorization: Option<&'r str>,
    /// `X-Api-Key`.
    pub key: Option<&'r str>,
    /// `Origin`, which browsers send for pages.
    pub origin: Option<&'r str>,
    /// `Host`.
    pub host: Option<&'r str>,
}

impl Caller<'_> {
    /// The key, if there is one.
    fn hash(&self) -> Option<Hash> {
        let bearer = self.authorization.and_then(|text| {
            let (scheme, key) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        bearer.or(self.key).map(|key| blake3::hash(key.as_bytes()))
    }
}

impl Keys {
    /// Adds a key.
    pub fn add(&mut self, key: &str) {
        self.users.push(blake3::hash(key.as_bytes()));
    }

    /// Adds the keys of a file, one in each line; empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// The file cannot be read, or has no key.
    pub fn add_file(&mut self, path: &Path) -> Result<(), Failure> {
        let text = read_text(path)?;
        let keys = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let before = self.users.len();
        keys.for_each(|key| self.add(key));
        if self.users.len() == before { Err(Failure::file(path, "has no key in it")) } else { Ok(()) }
    }

    /// Sets the key for `/admin`.
    pub fn set_admin(&mut self, key: &str) {
        self.admin = Some(blake3::hash(key.as_bytes()));
    }

    /// Whether anybody may ask.
    pub fn is_open(&self) -> bool {
        self.users.is_empty()
    }

    fn is_user(&self, hash: &Hash) -> bool {
        // `==` of hashes takes the same time whatever they are; `|` looks at all of them.
        self.users.iter().fold(false, |known, key| known | (key == hash))
    }

    /// Lets a caller in; the hash of the key that was shown, if it is one of ours.
    ///
    /// # Errors
    /// 401 without the right key.
    pub fn admit(&self, caller: &Caller<'_>, to_admin: bool) -> Result<Option<Hash>, ApiError> {
        let shown = caller.hash();
        let is_user = shown.is_some_and(|hash| self.is_user(&hash));
        let is_admin = shown.is_some_and(|hash| self.admin.is_some_and(|key| key == hash));
        let fits = match (to_admin, self.admin) {
            (true, Some(_)) => is_admin,
            _ => is_user || is_admin || self.is_open(),
        };
        if fits {
            return Ok(shown.filter(|_| is_user || is_admin));
        }
        let what = match (shown, to_admin && self.admin.is_some()) {
            (_, true) => "this needs the admin key",
            (Some(_), _) => "the API key is not known",
            (None, _) => "an API key is needed: Authorization: Bearer KEY",
        };
        Err(ApiError::new(401, what).coded("invalid_api_key"))
    }
}

/// Keeps pages of other sites out of a server that asks for no key: any page that somebody looks at could
/// use it. A page's name that leads to this machine by a trick of DNS is not this machine's own either.
///
/// # Errors
/// 403.
pub fn own_pages_only(caller: &Caller<'_>, cors: Option<&str>, loopback: bool) -> Result<(), ApiError> {
    if loopback && caller.host.is_some_and(|host| !is_local_name(host)) {
        return Err(ApiError::new(
            403,
            "Host is none of this machine's own names; use an API key to allow others",
        ));
    }
    let Some(origin) = caller.origin else { return Ok(()) };
    let own = origin.split_once("://").is_some_and(|(_, rest)| caller.host == Some(rest));
    if own || cors.is_some_and(|allowed| allowed == "*" || allowed == origin) {
        return Ok(());
    }
    Err(ApiError::new(403, "pages of other sites may not ask; --cors ORIGIN allows one"))
}

/// An address, or `localhost`: nothing that a name server could have said.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// What the prompts of a key and a `cache_salt` follow: they find nothing of others. Nothing for neither, as
/// for the other commands.
pub fn salt(key: Option<Hash>, salt: Option<&str>) -> Vec<u8> {
    if key.is_none() && salt.is_none() {
        return Vec::new();
    }
    let mut hasher = Hasher::new();
    hasher.update(key.as_ref().map_or(&[], |key| key.as_bytes()));
    hasher.update(&[u8::from(key.is_some())]);
    hasher.update(salt.unwrap_or("").as_bytes());
    hasher.finalize().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(text: &str) -> Caller<'_> {
        Caller { authorization: Some(text), ..Caller::default() }
    }

    #[test]
    fn keys_open_what_they_are_for() {
        let mut keys = Keys::default();
        assert!(keys.admit(&Caller::default(), true).unwrap().is_none());
        assert!(keys.admit(&bearer("Bearer whatever"), false).unwrap().is_none());
        keys.add("one");
        keys.add("two");
        assert!(keys.admit(&bearer("Bearer two"), false).unwrap().is_some());
        assert!(keys.admit(&bearer("bearer  one"), true).unwrap().is_some());
        assert!(keys.admit(&Caller { key: Some("one"), ..Caller::default() }, false).unwrap().is_some());
        for wrong in [bearer("Bearer three"), bearer("one"), bearer("Basic one"), Caller::default()] {
            assert_eq!(keys.admit(&wrong, false).unwrap_err().status, 401);
        }
        keys.set_admin("root");
        assert_eq!(keys.admit(&bearer("Bearer one"), true).unwrap_err().status, 401);
        assert!(keys.admit(&bearer("Bearer root"), true).unwrap().is_some());
        assert!(keys.admit(&bearer("Bearer root"), false).unwrap().is_some());
    }

    #[test]
    fn only_an_admin_key_leaves_the_rest_open() {
        let mut keys = Keys::default();
        keys.set_admin("root");
        assert!(keys.admit(&Caller::default(), false).is_ok());
        assert!(keys.admit(&Caller::default(), true).is_err());
    }

    #[test]
    fn pages_of_other_sites_stay_out() {
        let page = |origin, host| Caller { origin, host: Some(host), ..Caller::default() };
        let check = |caller: Caller<'_>, cors| own_pages_only(&caller, cors, true).map_err(|e| e.status);
        assert_eq!(check(page(None, "127.0.0.1:8080"), None), Ok(()));
        assert_eq!(check(page(None, "[::1]:8080"), None), Ok(()));
        assert_eq!(check(page(Some("http://localhost:8080"), "localhost:8080"), None), Ok(()));
        assert_eq!(check(page(Some("https://evil.example"), "localhost:8080"), None), Err(403));
        assert_eq!(check(page(Some("null"), "localhost:8080"), None), Err(403));
        assert_eq!(check(page(Some("http://evil.example"), "evil.example"), None), Err(403));
        assert_eq!(check(page(Some("https://a.example"), "localhost"), Some("https://a.example")), Ok(()));
        assert_eq!(check(page(Some("https://b.example"), "localhost"), Some("*")), Ok(()));
        assert_eq!(own_pages_only(&page(None, "board.lan"), None, false), Ok(()));
    }

    #[test]
    fn salts_differ() {
        let key = |text: &str| Some(blake3::hash(text.as_bytes()));
        assert!(salt(None, None).is_empty());
        let all =
            [salt(key("a"), None), salt(key("b"), None), salt(None, Some("a")), salt(key("a"), Some("a"))];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert!(all[..i].iter().all(|other| other != one));
        }
    }
}
