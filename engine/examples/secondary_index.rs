//! Find rows by something else than their key, also by several things at once.

use quenchdb::{Database, ErrorKind, Postcard, Result, TypedTable};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Article {
    slug: String,
    author: String,
    published: u64,
    tags: Vec<String>,
}

fn article(slug: &str, author: &str, published: u64, tags: &[&str]) -> Article {
    let tags = tags.iter().map(ToString::to_string).collect();
    Article { slug: slug.into(), author: author.into(), published, tags }
}

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let articles: TypedTable<u64, Postcard<Article>> = db.typed_table("articles")?;
    let by_slug = db.unique_index(&articles, "by slug", |article: &Article| [article.slug.clone()])?;
    // The newest articles of an author: an index of two parts.
    let by_author =
        db.index(&articles, "by author", |article: &Article| [(article.author.clone(), article.published)])?;
    // One entry for each tag.
    let by_tag = db.index(&articles, "by tag", |article: &Article| article.tags.clone())?;

    db.transact(|tx| {
        articles.insert(tx, 1, &article("on-logs", "ann", 10, &["storage", "logs"]))?;
        articles.insert(tx, 2, &article("on-trees", "bob", 20, &["storage"]))?;
        articles.insert(tx, 3, &article("on-time", "ann", 30, &["clocks"]))
    })?;

    let snapshot = db.begin_read()?;
    assert_eq!(by_slug.get(&snapshot, "on-trees")?.map(|(id, _)| id), Some(2));
    let newest = by_author.range(&snapshot, ("ann", 0)..=("ann", u64::MAX)).next_back();
    assert_eq!(newest.transpose()?.map(|(_, id, _)| id), Some(3));
    assert_eq!(by_tag.get(&snapshot, "storage").count(), 2);

    let taken = db.transact(|tx| articles.insert(tx, 4, &article("on-logs", "eve", 40, &[])));
    assert_eq!(taken.expect_err("the slug is taken").kind(), ErrorKind::AlreadyExists);
    Ok(())
}
