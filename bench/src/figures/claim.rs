//! A claim of a paper: what it states and where, our number, and the verdict.
//!
//! ```text
//!   published 1.60 x, without the effect 1.00 x: the effect is 0.60
//!
//!      0.8      1.0      1.3           1.6                   2.2        2.6
//!   ────┼────────┼────────┼─────────────┼─────────────────────┼──────────┼────▶ our number
//!    not here    │ weaker │       reproduced: half to         │ stronger
//!                │        │       twice the effect            │
//!          runs on both sides of 1.0: within noise
//! ```
//!
//! Every claim is judged by the same rule: the band is half to twice the published effect. The
//! effect is the factor, less 1, between the published number and the number that there would be
//! without the effect. So no band contains the number without effect.

use super::runs::Summary;
use serde::{Deserialize, Serialize};

/// A claim without a published number is reproduced with at least this effect.
const EFFECT_LEAST: f64 = 0.1;

/// A number of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Name of the part.
    pub part: String,
    /// Value of the axis.
    pub x: String,
    /// Variant.
    pub variant: String,
    /// Measure.
    pub measure: String,
}

/// Computes a number of ours that a paper states, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ours {
    /// The number itself.
    Value(At),
    /// The first divided by the second.
    Ratio(At, At),
    /// Change from the second to the first in percent of the second.
    Change(At, At),
    /// The smallest quotient over the axis of the variant and the largest other one.
    LeastAgainstOthers(At),
    /// At how many values of the axis it is at most so many percent behind the largest other one.
    CountAgainstOthers(At, u8),
    /// Nothing is measured, because this machine or this program lacks what it takes.
    Absent,
}

/// What a paper states about a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Published {
    /// The number.
    Number(f64),
    /// Only that it is larger than without the effect.
    More,
    /// Only that it is smaller than without the effect.
    Less,
    /// Nothing: our number is shown by itself.
    Nothing,
}

/// What a paper states, and our number.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The statement.
    pub text: String,
    /// Where it stands in the paper, and under which conditions.
    pub place: String,
    /// The number or the direction.
    pub published: Published,
    /// Unit of all numbers.
    pub unit: String,
    /// The number that there would be without the effect.
    pub without: f64,
    /// Ours.
    pub ours: Ours,
    /// Why ours is another one, if it is.
    pub because: String,
    /// True if it is a headline of the paper.
    pub headline: bool,
}

/// What became of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our number is within the band.
    Reproduced,
    /// The effect is there, but weaker or stronger.
    SameDirection,
    /// The runs are on both sides of the number without effect.
    WithinNoise,
    /// There is no such effect here, or nothing to measure it with.
    NotHere,
    /// A point is missing.
    NotMeasured,
}

impl Verdict {
    /// All, in the order of the report.
    pub const ALL: [Verdict; 5] = [
        Verdict::Reproduced,
        Verdict::SameDirection,
        Verdict::WithinNoise,
        Verdict::NotHere,
        Verdict::NotMeasured,
    ];

    /// Returns the words of the report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::SameDirection => "same direction",
            Verdict::WithinNoise => "within noise",
            Verdict::NotHere => "not here",
            Verdict::NotMeasured => "not measured",
        }
    }
}

impl Claim {
    /// Returns a number as a multiple of the number without effect.
    fn multiple(&self, number: f64) -> f64 {
        match self.unit.as_str() {
            "%" => (100.0 + number) / (100.0 + self.without),
            _ => number / self.without,
        }
    }

    /// Returns the number that is a multiple of the number without effect.
    fn number(&self, multiple: f64) -> f64 {
        match self.unit.as_str() {
            "%" => multiple * (100.0 + self.without) - 100.0,
            _ => multiple * self.without,
        }
    }

    fn is_more(&self) -> bool {
        match self.published {
            Published::Number(number) => self.multiple(number) > 1.0,
            Published::More | Published::Nothing => true,
            Published::Less => false,
        }
    }

    /// Returns the effect of a number: 0 without effect, negative in the other direction.
    #[must_use]
    pub fn effect(&self, number: f64) -> f64 {
        let multiple = self.multiple(number);
        if self.is_more() { multiple - 1.0 } else { 1.0 / multiple - 1.0 }
    }

    /// Returns the published effect, if the paper states a number.
    #[must_use]
    pub fn published_effect(&self) -> Option<f64> {
        match self.published {
            Published::Number(number) => Some(self.effect(number)),
            _ => None,
        }
    }

    /// Returns the least and the most effect that reproduces the claim.
    fn effects(&self) -> (f64, f64) {
        self.published_effect().map_or((EFFECT_LEAST, f64::INFINITY), |effect| (effect / 2.0, effect * 2.0))
    }

    /// Returns the band: the smallest and the largest number that reproduce the claim, if there is
    /// one.
    #[must_use]
    pub fn band(&self) -> (Option<f64>, Option<f64>) {
        let (least, most) = self.effects();
        let number = |effect: f64| {
            let multiple = if self.is_more() { 1.0 + effect } else { (1.0 + effect).recip() };
            effect.is_finite().then(|| self.number(multiple))
        };
        if self.is_more() { (number(least), number(most)) } else { (number(most), number(least)) }
    }

    /// Returns the verdict, and our effect as a multiple of the published one.
    #[must_use]
    pub fn verdict(&self, ours: Option<&Summary>) -> (Verdict, Option<f64>) {
        let Some(ours) = ours else {
            let verdict = if self.ours == Ours::Absent { Verdict::NotHere } else { Verdict::NotMeasured };
            return (verdict, None);
        };
        let effect = self.effect(ours.median);
        let strength = self.published_effect().map(|published| effect / published);
        let runs = || ours.runs.iter().map(|number| self.effect(*number));
        let (least, most) = self.effects();
        let verdict = match () {
            () if runs().any(|effect| effect > 0.0) && runs().any(|effect| effect <= 0.0) => {
                Verdict::WithinNoise
            }
            () if (least..=most).contains(&effect) => Verdict::Reproduced,
            () if effect > 0.0 => Verdict::SameDirection,
            () => Verdict::NotHere,
        };
        (verdict, strength)
    }
}

#[cfg(test)]
mod tests;
