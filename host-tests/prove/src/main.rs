//! `prove [quick|deep] [world]`: every world to its end, then every fence taken away. `quick` is the
//! bound that the tests have; `prove deep fences` and `prove deep retry` run parts.

use idempo_prove::report::{Found, check};
use idempo_prove::{Fence, ONE_EFFECT, Setup, missing, scenarios};
use std::process::ExitCode;

/// Beyond any world here: nothing is cut off, as the report says of each.
const MOST: usize = 100_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let quick = arguments.next().as_deref() == Some("quick");
    let only = arguments.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let mut good = true;
    let (mut states, mut generated, mut depth) = (0, 0, 0);
    for setup in scenarios::all() {
        if !wanted(setup.name) {
            continue;
        }
        let setup = if quick { setup.brief() } else { setup };
        let found = check(&setup, MOST, 2, None);
        println!("{:<15} {found}\n    {}", setup.name, setup.about);
        states += found.states;
        generated += found.generated;
        depth = depth.max(found.depth);
        for name in &found.holds {
            println!("    holds: {name}");
        }
        for name in &found.comes {
            println!("    comes about: {name}");
        }
        good &= found.whole && found.wrong.is_empty();
        for name in &found.wrong {
            println!("    WRONG: {name}");
            for step in found.paths.get(name).into_iter().flatten() {
                println!("        {step}");
            }
        }
    }
    if states > 0 {
        println!("all worlds: {states} states ({generated} generated), greatest depth {depth}\n");
    }
    for fence in Fence::ALL {
        let name = format!("{fence:?}");
        if !wanted(&name) && !wanted("fences") {
            continue;
        }
        let (setup, property) = missing::without(fence);
        let found = check(&setup, MOST, 1, Some(property));
        good &= show_failure(
            &format!("rule {}, without: {}", fence.rule(), fence.says()),
            property,
            &setup,
            &found,
        );
    }
    for setup in [missing::retrying(), missing::same_epoch()] {
        if wanted(setup.name) {
            let found = check(&setup, MOST, 1, Some(ONE_EFFECT));
            good &= show_failure(setup.about, ONE_EFFECT, &setup, &found);
        }
    }
    ExitCode::from(u8::from(!good))
}

/// What must fail, and how it does.
fn show_failure(what: &str, property: &'static str, setup: &Setup, found: &Found) -> bool {
    println!("{what}\n    in the world \"{}\", {found}", setup.name);
    let Some(path) = found
        .paths
        .get(property)
        .filter(|_| found.wrong.contains(&property))
    else {
        println!("    NOT MISSED: {property}");
        return false;
    };
    println!("    fails: {property}");
    for step in path {
        println!("        {step}");
    }
    true
}
