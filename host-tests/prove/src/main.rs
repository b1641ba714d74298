//! `prove [states] [world]`: every world to its end, or to that many states.

use idempo_prove::report::check;
use idempo_prove::{Fence, scenarios};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let most = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(3_000_000);
    let only = arguments.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let mut good = true;
    for setup in scenarios::all().iter().filter(|s| wanted(s.name)) {
        let found = check(setup, most, 2, false);
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
        if only.is_some() && !wanted(&name) {
            continue;
        }
        let setup = scenarios::without(fence);
        let found = check(&setup, most, 1, true);
        println!("without {name:<16} ({}) {found}", setup.name);
        good &= !found.wrong.is_empty();
        for name in &found.wrong {
            println!("    {name}: {}", found.paths.get(name).map_or(String::new(), |p| p.join("; ")));
        }
    }
    ExitCode::from(u8::from(!good))
}
