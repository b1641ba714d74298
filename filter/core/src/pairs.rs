//! Header maps as proxy-wasm hosts pass them (proxy-wasm ABI 0.2.1, "serialized map").
//!
//! ```text
//! u32 count, then count × (u32 name length, u32 value length), then count × (name \0 value \0)
//! ```
//!
//! All numbers little endian. Written here rather than taken from the SDK because its reader panics
//! on a map that does not add up, and its local replies take only UTF-8.

use crate::http::{Headers, Line};

/// Reads a serialized map; `None` where it does not add up.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<Headers> {
    let (count, rest) = number(bytes)?;
    let sizes_length = count.checked_mul(8)?;
    let (sizes, mut rest) = rest.split_at_checked(sizes_length)?;
    // No more lines than there are octets to describe them: `count` allocates nothing by itself.
    let mut lines = Vec::with_capacity(count);
    for pair in sizes.chunks_exact(8) {
        let (name_length, pair) = number(pair)?;
        let (value_length, _) = number(pair)?;
        let name;
        let value;
        (name, rest) = terminated(rest, name_length)?;
        (value, rest) = terminated(rest, value_length)?;
        lines.push((name.to_vec(), value.to_vec()));
    }
    Some(Headers::new(lines))
}

/// Writes a serialized map.
#[must_use]
pub fn write(lines: &[Line]) -> Vec<u8> {
    let octets: usize = lines.iter().map(|(n, v)| n.len() + v.len() + 10).sum();
    let mut out = Vec::with_capacity(4 + octets);
    let mut put = |n: usize| out.extend_from_slice(&u32::try_from(n).unwrap_or(0).to_le_bytes());
    put(lines.len());
    for (name, value) in lines {
        put(name.len());
        put(value.len());
    }
    for (name, value) in lines {
        out.extend_from_slice(name);
        out.push(0);
        out.extend_from_slice(value);
        out.push(0);
    }
    out
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*head)).ok()?, rest))
}

fn terminated(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(length)?;
    Some((text, rest.split_first()?.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn lines_round_trip() {
        let lines: Vec<Line> = vec![
            (b"a".to_vec(), b"1".to_vec()),
            (b"a".to_vec(), b"\xff\0,".to_vec()),
            (b"empty".to_vec(), Vec::new()),
        ];
        assert_eq!(read(&write(&lines)).map(Headers::into_lines), Some(lines));
        assert_eq!(read(&write(&[])), Some(Headers::default()));
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let good = write(&[(b"name".to_vec(), b"value".to_vec())]);
        for end in 0..good.len() {
            assert_eq!(read(&good[..end]), None, "{end}");
        }
        assert_eq!(read(&[0xff; 64]), None);
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_lines_round_trip(lines: Vec<(Vec<u8>, Vec<u8>)>) {
            let mut expected = lines.clone();
            // Names are compared in lower case from then on.
            expected.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
            prop_assert_eq!(read(&write(&lines)).map(Headers::into_lines), Some(expected));
        }

        #[test]
        fn any_octets_are_survived(count in 0_u32..6, octets in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = read(&octets);
            let mut counted = count.to_le_bytes().to_vec();
            counted.extend(&octets);
            if let Some(headers) = read(&counted) {
                prop_assert_eq!(headers.lines().len(), count as usize);
            }
        }
    }
}
