//! The pictures.

use crate::compare::{Row, median};
use plotters::prelude::*;
use std::path::Path;

const INK: RGBColor = RGBColor(40, 40, 40);
const BAR: RGBColor = RGBColor(86, 130, 163);
const GOAL: RGBColor = RGBColor(196, 78, 82);

fn failed(file: &Path) -> impl Fn(String) -> String + '_ {
    move |why| format!("{}: {why}", file.display())
}

/// A bar for each row: median, least and greatest ratio, and the goal.
#[allow(clippy::cast_precision_loss)] // Row numbers.
pub(crate) fn ratios(rows: &[Row], file: &Path) -> Result<(), String> {
    let height = 90 + 46 * u32::try_from(rows.len()).unwrap_or(0);
    let root = SVGBackend::new(file, (960, height)).into_drawing_area();
    let draw = || -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption("Throughput against the yardstick", ("sans-serif", 18))
            .margin(12)
            .margin_left(390)
            .x_label_area_size(32)
            .build_cartesian_2d(0.0..1.1, 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .disable_y_mesh()
            .disable_y_axis()
            .x_desc("ratio (median, least to greatest; red: goal)")
            .draw()?;
        for (index, row) in rows.iter().enumerate() {
            let y = (rows.len() - index) as f64 - 0.5;
            let ratios = row.ratios();
            let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
                continue;
            };
            let middle = median(&ratios);
            let corners = [(0.0, y - 0.28), (middle, y + 0.28)];
            chart.draw_series([Rectangle::new(corners, BAR.filled())])?;
            let range = vec![(*least, y), (*most, y)];
            chart.draw_series([PathElement::new(range, INK.stroke_width(2))])?;
            if let Some(goal) = row.comparison.goal {
                let mark = vec![(goal, y - 0.42), (goal, y + 0.42)];
                chart.draw_series([PathElement::new(mark, GOAL.stroke_width(3))])?;
            }
            let (_, at) = chart.backend_coord(&(0.0, y));
            let title = format!(
                "{} / {}: {middle:.2} {}",
                row.comparison.subject.title(),
                row.comparison.yardstick.title(),
                row.verdict()
            );
            let font = ("sans-serif", 13).into_font().color(&INK);
            root.draw(&Text::new(title, (12, at - 6), font))?;
        }
        root.present()?;
        Ok(())
    };
    draw().map_err(|e| failed(file)(e.to_string()))
}

/// Memory over operations, with a line that it must not cross for long.
pub(crate) fn memory(samples: &[(f64, f64)], bound: f64, file: &Path) -> Result<(), String> {
    let last = samples.last().map_or(1.0, |(x, _)| x.max(1.0));
    let top = samples.iter().fold(bound, |top, (_, y)| top.max(*y)) * 1.15;
    let root = SVGBackend::new(file, (900, 400)).into_drawing_area();
    let draw = || -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                "Envoy's resident memory over operations",
                ("sans-serif", 18),
            )
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..last, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("operations")
            .y_desc("MiB")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        chart
            .draw_series(LineSeries::new(
                samples.iter().copied(),
                BAR.stroke_width(2),
            ))?
            .label("resident")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BAR.stroke_width(2)));
        chart
            .draw_series(LineSeries::new(
                [(0.0, bound), (last, bound)],
                GOAL.stroke_width(2),
            ))?
            .label("before the first operation + budgets")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], GOAL.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.filled())
            .border_style(INK)
            .draw()?;
        root.present()?;
        Ok(())
    };
    draw().map_err(|e| failed(file)(e.to_string()))
}
