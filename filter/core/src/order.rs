//! Sorting, compiled once.
//!
//! The standard sorts are compiled anew for every type and comparison, some 5 kB of module each time.
//! Here positions are sorted by one comparison behind a pointer, and the items follow: still a stable
//! merge sort, so no input makes it quadratic.

use std::cmp::Ordering;

/// Sorts; equal items keep their order.
pub(crate) fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    if items.is_sorted_by(|a, b| compare(a, b).is_le()) {
        return;
    }
    let places = places(items, compare);
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    let item = |place: usize| taken.get_mut(place)?.take();
    items.extend(places.into_iter().filter_map(item));
}

/// The first position whose item stands at an earlier one, too.
pub(crate) fn repeated<T: Ord>(items: &[T]) -> Option<usize> {
    let places = places(items, T::cmp);
    let next = places.iter().skip(1);
    let same = |(a, b): &(&usize, &usize)| items.get(**a) == items.get(**b);
    // Equal items keep their order, so the later one is the second of the pair.
    let pairs = places.iter().zip(next).filter(same);
    pairs.map(|(_, later)| *later).min()
}

/// The positions of the items, in their order.
fn places<T>(items: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..items.len()).collect();
    rank(&mut places, &|a, b| {
        let pair = items.get(a).zip(items.get(b));
        pair.map_or(Ordering::Equal, |(a, b)| compare(a, b))
    });
    places
}

fn rank(places: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    places.sort_by(|a, b| compare(*a, *b));
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn equal_items_keep_their_order() {
        // A multiplier prime to the length visits every key in a scrambled order.
        let scrambled = (0..1000_usize).map(|i| (i * 617 % 1000 / 10, i));
        let mut items: Vec<_> = scrambled.collect();
        let mut expected = items.clone();
        sort_by(&mut items, |a, b| a.0.cmp(&b.0));
        expected.sort();
        assert_eq!(items, expected);
        sort_by(&mut items, |a, b| b.0.cmp(&a.0));
        assert!(items.is_sorted_by_key(|(key, place)| (std::cmp::Reverse(*key), *place)));
    }

    #[test]
    fn owned_items_are_moved_whole() {
        for text in ["", "b", "b a", "c b a", "a b c", "b a b a", "é z a"] {
            let mut items: Vec<String> = text.split(' ').map(Into::into).collect();
            let mut expected = items.clone();
            sort_by(&mut items, String::cmp);
            expected.sort();
            assert_eq!(items, expected);
        }
    }

    #[test]
    fn the_first_repetition_is_found() {
        for (items, expected) in [
            (&[][..], None),
            (&[1], None),
            (&[3, 1, 2], None),
            (&[3, 1, 3], Some(2)),
            (&[9, 5, 1, 5, 9, 5], Some(3)),
            (&[1, 9, 9, 1], Some(2)),
        ] {
            assert_eq!(repeated(items), expected, "{items:?}");
        }
    }
}
