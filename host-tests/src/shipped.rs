//! Renders the shipped `envoy/envoy.yaml` for other ports and another module.
//!
//! The file is a working configuration as it stands. The few values that differ between machines
//! are at the end of lines that carry a marker (`# @PORT`), and only those are replaced, so what
//! runs is what is shipped. (Envoy's own `--config-yaml` overlay appends to lists, so it cannot
//! change a listener's port.)

use std::path::Path;

/// The values that may differ.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// The data listener's port.
    pub port: u16,
    /// The admin endpoint's port.
    pub admin_port: u16,
    /// The upstream's port.
    pub upstream_port: u16,
    /// The module.
    pub wasm: &'a Path,
}

/// Replaces the marked values in the shipped text.
///
/// # Errors
/// Names a marker that is not there exactly once: the file and this function have drifted.
pub fn render(shipped: &str, values: &Values<'_>) -> Result<String, String> {
    let replacements = [
        ("# @PORT", values.port.to_string()),
        ("# @ADMIN_PORT", values.admin_port.to_string()),
        ("# @UPSTREAM_PORT", values.upstream_port.to_string()),
        ("# @WASM", format!("\"{}\"", values.wasm.display())),
    ];
    let mut seen = [0; 4];
    let mut out = String::with_capacity(shipped.len());
    for line in shipped.lines() {
        let found = replacements
            .iter()
            .enumerate()
            .find(|(_, (marker, _))| line.ends_with(marker));
        match found.zip(line.split_once(": ")) {
            Some(((index, (marker, value)), (name, _))) => {
                seen[index] += 1;
                out.push_str(&format!("{name}: {value} {marker}\n"));
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    for ((marker, _), count) in replacements.iter().zip(seen) {
        if count != 1 {
            return Err(format!("{marker} occurs {count} times, expected once"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a:\n  port_value: 1 # @PORT\n  port_value: 2 # @ADMIN_PORT\n  port_value: 3 # @UPSTREAM_PORT\n  filename: x.wasm # @WASM\n";

    fn values() -> Values<'static> {
        Values {
            port: 7,
            admin_port: 8,
            upstream_port: 9,
            wasm: Path::new("/m/y.wasm"),
        }
    }

    #[test]
    fn only_marked_values_change() {
        let got = render(TEXT, &values()).unwrap();
        assert_eq!(
            got,
            "a:\n  port_value: 7 # @PORT\n  port_value: 8 # @ADMIN_PORT\n  port_value: 9 # @UPSTREAM_PORT\n  filename: \"/m/y.wasm\" # @WASM\n"
        );
    }

    #[test]
    fn a_marker_that_is_missing_or_doubled_is_an_error() {
        assert!(render(&TEXT.replace("# @WASM", ""), &values()).is_err());
        assert!(render(&format!("{TEXT}{TEXT}"), &values()).is_err());
    }
}
