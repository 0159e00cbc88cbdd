//! Feed 3: patches.

use super::Bounds;
use super::corpus::Corpus;
use super::score::Found;
use super::servers::Pair;

/// Runs the feed.
pub async fn run(_pair: &Pair, _corpus: &Corpus, _bounds: &Bounds) -> anyhow::Result<Found> {
    Ok(Found::default())
}
