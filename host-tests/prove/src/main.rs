//! `prove [states] [world]`: every world to its end, or to that many states.

use idempo_prove::report::{Found, check};
use idempo_prove::{Fence, ONE_EFFECT, Setup, missing, scenarios};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let most = arguments
        .next()
        .and_then(|a| a.parse().ok())
        .unwrap_or(3_000_000);
    let only = arguments.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let mut good = true;
    for setup in scenarios::all().iter().filter(|s| wanted(s.name)) {
        let found = check(setup, most, 2, None);
        println!("{:<15} {found}  {}", setup.name, setup.about);
        for name in &found.wrong {
            good = false;
            println!("    WRONG: {name}");
            for step in found.paths.get(name).into_iter().flatten() {
                println!("        {step}");
            }
        }
    }
    for fence in Fence::ALL {
        let name = format!("{fence:?}");
        if !wanted(&name) && !wanted("fences") {
            continue;
        }
        let (setup, property) = missing::without(fence);
        let found = check(&setup, most, 1, Some(property));
        good &= show_failure(
            &format!("rule {}, without: {}", fence.rule(), fence.says()),
            property,
            &setup,
            &found,
        );
    }
    for setup in [missing::retrying(), missing::same_epoch()] {
        if wanted(setup.name) {
            let found = check(&setup, most, 1, Some(ONE_EFFECT));
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
