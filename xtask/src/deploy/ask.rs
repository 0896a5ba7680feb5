//! The script that asks the service on the remote for its health, with what a board has for that. Must not
//! know who wants to know.

use super::script::Script;

/// Asks the service for its health until it answers that all is well, `$2` times at most, a second apart.
/// `$1` is the file of its flags, which say where it listens. Says the address and the answer.
pub const HEALTH: Script = Script {
    what: "ask the service",
    text: r#"set -u
conf=$1
flag() {
  sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*//p" "$conf" | sed 's/[[:space:]]*$//' | tail -n 1
}
host=$(flag host) port=$(flag port) unix=$(flag unix)
case $host in ''|localhost|0.0.0.0) host=127.0.0.1 ;; ::) host=::1 ;; esac
port=${port:-8080}
case $host in *:*) url="http://[$host]:$port/health" ;; *) url=http://$host:$port/health ;; esac
if [ -n "$unix" ]; then url=$unix; fi
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
ask() {
  if [ -n "$unix" ]; then curl -sS -m 5 --unix-socket "$unix" http://localhost/health
  elif command -v curl >/dev/null; then curl -sS -g -m 5 "$url"
  elif command -v wget >/dev/null; then wget -q -T 5 -t 1 -O - "$url"
  else timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2" || exit
    printf "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3
    cat <&3' bash "$host" "$port"
  fi
}
tries=$2
while :; do
  answer=$(ask 2>&1)
  case $answer in *'"status":"ok"'*) break ;; esac
  tries=$((tries - 1))
  if [ "$tries" -le 0 ]; then echo "no health at $url: $answer" >&2; exit 1; fi
  sleep 1
done
echo "$url"
printf '%s\n' "$answer" | tail -n 1"#,
    changes: false,
    seconds: Some(240),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::script;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    /// Answers one connection with each of `replies`.
    fn server(replies: Vec<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for reply in replies {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut asked, mut byte) = (Vec::new(), [0]);
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    asked.push(byte[0]);
                }
                assert!(asked.starts_with(b"GET /health HTTP/1.1\r\n"));
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        port
    }

    const LOADING: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nload";
    const WELL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}";

    #[test]
    fn each_client_waits_for_health() {
        let dir = std::env::temp_dir().join(format!("kinglet-xtask-ask-{}", std::process::id()));
        let find = |name: &str| {
            let output = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", name]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let mut asked = 0;
        for client in ["curl", "wget", "bash"] {
            if find(client).is_empty() {
                continue;
            }
            asked += 1;
            let path = dir.join(client);
            fs::create_dir_all(&path).unwrap();
            // A board with this one alone.
            for name in ["sed", "tail", "sleep", "sh", "cat", "timeout", client] {
                let _ = symlink(find(name), path.join(name));
            }
            let run = |port: u16, tries: &str| {
                let conf = path.join("conf");
                let text = format!("# port = 1\n  port =  {port}  \nhost = 0.0.0.0\nunixes = /x\n");
                fs::write(&conf, text).unwrap();
                let line = script::line(&HEALTH, &[conf.to_str().unwrap(), tries], false);
                let output =
                    Command::new(find("sh")).args(["-c", &line]).env("PATH", &path).output().unwrap();
                let text = |bytes| String::from_utf8(bytes).unwrap();
                (output.status.code(), text(output.stdout), text(output.stderr))
            };
            let port = server(vec![LOADING, WELL]);
            let (code, said, fault) = run(port, "9");
            let expected = format!("http://127.0.0.1:{port}/health\n{{\"status\":\"ok\"}}\n");
            assert_eq!((code, said.as_str()), (Some(0), expected.as_str()), "{client}: {fault}");
            let port = server(vec![LOADING]);
            let (code, said, fault) = run(port, "1");
            assert_eq!((code, said.as_str()), (Some(1), ""), "{client}");
            assert!(fault.contains(&format!("no health at http://127.0.0.1:{port}/health")), "{fault}");
        }
        assert!(asked > 0, "no client here");
        fs::remove_dir_all(&dir).unwrap();
    }
}
