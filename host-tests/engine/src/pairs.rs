//! Serialized header maps (proxy-wasm ABI 0.2.1), written apart from the filter's own reader so that
//! neither hides the other's mistakes: a count, the lengths, then every name and value with a NUL behind.

/// Header lines in order.
pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// What Envoy hands to a module; an empty map is no octets at all.
#[must_use]
pub fn serialize(lines: &Lines) -> Vec<u8> {
    if lines.is_empty() {
        return Vec::new();
    }
    let word = |n: usize| u32::try_from(n).expect("a header of a test").to_le_bytes();
    let mut out = word(lines.len()).to_vec();
    for (name, value) in lines {
        out.extend(word(name.len()));
        out.extend(word(value.len()));
    }
    for part in lines.iter().flat_map(|(name, value)| [name, value]) {
        out.extend(part);
        out.push(0);
    }
    out
}

/// What a module hands to Envoy. `None` where it does not add up, or a NUL is not where it belongs.
#[must_use]
pub fn parse(octets: &[u8]) -> Option<Lines> {
    if octets.is_empty() {
        return Some(Vec::new());
    }
    let mut words = octets.chunks_exact(4).map(|w| {
        let word: [u8; 4] = w.try_into().expect("four octets");
        u32::from_le_bytes(word) as usize
    });
    let count = words.next()?;
    let mut at = 4 + count.checked_mul(8)?;
    let mut lines = Vec::new();
    for _ in 0..count {
        let mut part = |length: usize| {
            let text = octets.get(at..at.checked_add(length)?)?;
            (*octets.get(at + length)? == 0).then(|| {
                at += length + 1;
                text.to_vec()
            })
        };
        lines.push((part(words.next()?)?, part(words.next()?)?));
    }
    (at == octets.len()).then_some(lines)
}

/// Lines from text.
#[must_use]
pub fn lines(pairs: &[(&str, &str)]) -> Lines {
    pairs
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

/// The first value of that name, as text.
#[must_use]
pub fn first(lines: &Lines, name: &str) -> Option<String> {
    lines
        .iter()
        .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_round_trip_and_broken_ones_are_refused() {
        let all = lines(&[(":path", "/"), ("a", ""), ("a", "b")]);
        let octets = serialize(&all);
        assert_eq!(parse(&octets), Some(all));
        assert_eq!(parse(&[]), Some(Vec::new()));
        for end in 1..octets.len() {
            assert_eq!(parse(&octets[..end]), None, "{end}");
        }
        let mut open = octets.clone();
        *open.last_mut().expect("not empty") = b'x';
        assert_eq!(parse(&open), None, "no NUL at the end");
    }
}
