//! Finds names that are similar to one that does not exist, for advice.

/// Most names that are suggested.
const NAMES_MAX: usize = 3;
/// Longest name that is compared, in characters.
const CHARACTERS_MAX: usize = 100;
/// Most names that are compared, in a fraction of a millisecond.
const COMPARED_MAX: usize = 500;

/// Returns the names that a user may have meant by `wanted`, the most similar first.
pub fn similar_names(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in names.into_iter().take(COMPARED_MAX) {
        if let Some(distance) = distance_between(wanted, &name) {
            found.push((distance, name));
            found.sort();
            found.truncate(NAMES_MAX);
        }
    }
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns advice that suggests the names similar to `wanted`, if there are any.
pub fn suggestion(wanted: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let found = similar_names(wanted, names);
    let quoted: Vec<String> = found.iter().map(|name| format!("`{name}`")).collect();
    let (last, before) = quoted.split_last()?;
    Some(match before {
        [] => format!("check the name: there is {last}"),
        _ => format!("check the name: there are {} and {last}", before.join(", ")),
    })
}

/// Returns how different two names are, or `None` if they are not similar: a third of the
/// characters may differ, and at least one. Case does not count, and swapped neighbours count once.
fn distance_between(wanted: &str, name: &str) -> Option<usize> {
    let [a, b] = [wanted, name].map(|text| text.to_lowercase().chars().collect::<Vec<char>>());
    let allowed = (a.len().max(b.len()) / 3).max(1);
    if a.len().max(b.len()) > CHARACTERS_MAX || a.len().abs_diff(b.len()) > allowed {
        return None;
    }
    // Rows of the table of distances between the begins of both.
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    let distance = last[b.len()];
    // Two names of one character each are not similar.
    (distance <= allowed && distance < a.len().max(b.len())).then_some(distance)
}

#[cfg(test)]
mod tests;
