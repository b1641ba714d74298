//! Files as documents: YAML as Envoy reads it, or JSON.

mod node;
mod scalar;
mod yaml;

pub(crate) use node::Node;

use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;

/// Larger than any configuration: a wrong path should not fill the memory.
const MAX_FILE: u64 = 64 << 20;

/// A file that was read.
pub(crate) struct Document {
    /// How it is called in messages.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// JSON text, which goes to the core as it is.
    pub(crate) is_json: bool,
    /// Its documents; one where it is JSON.
    pub(crate) roots: Vec<Rc<Node>>,
}

/// Octets of a file, or of the standard input for `-`.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let name = name(path);
    let problem = |e: std::io::Error| format!("{name}: {e}");
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(path).map_err(problem)?;
        file.take(MAX_FILE + 1).read_to_end(&mut bytes)
    };
    read.map_err(problem)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("{name}: is larger than {} MiB", MAX_FILE >> 20));
    }
    Ok(bytes)
}

/// Reads and parses a file.
///
/// # Errors
/// One line that names the file, the place and the problem.
pub(crate) fn open(path: &Path) -> Result<Document, String> {
    parse(name(path), read_bytes(path)?, Ending::of(path))
}

fn parse(name: String, bytes: Vec<u8>, ending: Ending) -> Result<Document, String> {
    let json_name = ending == Ending::Json;
    let looks_json = ending == Ending::Other && bytes.trim_ascii_start().first() == Some(&b'{');
    if json_name || looks_json {
        match idempo_core::config::json_value(&bytes) {
            Ok(value) => {
                return Ok(Document {
                    name,
                    bytes,
                    is_json: true,
                    roots: vec![Rc::new(Node::from_json(value))],
                });
            }
            Err(e) if json_name => return Err(format!("{name}: is not JSON: {e}")),
            Err(_) => {}
        }
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| format!("{name}: is not UTF-8 (octet {})", e.valid_up_to()))?;
    let roots = yaml::read(text.trim_start_matches('\u{feff}'))
        .map_err(|e| format!("{name}: is not YAML that can be used: {e}"))?;
    Ok(Document {
        name,
        bytes,
        is_json: false,
        roots,
    })
}

fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.display().to_string()
}

/// Envoy goes by a file's ending. Of other names only the text can tell: JSON is read as JSON, since
/// its numbers are not what YAML makes of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Json,
    Yaml,
    Other,
}

impl Ending {
    fn of(path: &Path) -> Self {
        let ending = path.extension().map(|e| e.to_ascii_lowercase());
        match ending.as_ref().and_then(|e| e.to_str()) {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Other,
        }
    }
}
