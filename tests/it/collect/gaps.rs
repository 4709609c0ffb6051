//! Tests reading new posts back to the known ones, and the gaps that are recorded.

use topicmill_core::Timestamp;

use super::*;

#[tokio::test]
async fn new_posts_are_read_back_to_the_known_ones_and_no_further() {
    let scene = Scene::new().await;
    scene.new_page(None, &posted(0..5), Some("t3_old")).await;
    let first = scene.collect_one(new_climate(5)).await;
    // The first run reads up to its limit.
    assert_eq!((first.pages, first.stored.new), (1, 5));

    // Seven posts are new. The newest known one is from minute 4, and the overlap adds ten minutes.
    scene.new_page(None, &posted(6..12), Some("t3_m6")).await;
    scene
        .new_page(Some("t3_m6"), &posted(4..6), Some("t3_m4"))
        .await;
    let old = [child("ancient", &json!({"created_utc": 1_749_990_000}))];
    scene
        .new_page(Some("t3_m4"), &old, Some("t3_ancient"))
        .await;
    let second = scene.collect_one(new_climate(5)).await;
    assert_eq!(
        (second.outcome, second.pages),
        (Outcome::Ok, 3),
        "{second:?}"
    );
    assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["13"]);
    assert_eq!(scene.store().posts().gaps().await.unwrap(), []);
}

#[tokio::test]
async fn a_run_that_crashes_between_two_pages_leaves_no_gap() {
    let scene = Scene::new().await;
    scene.new_page(None, &posted(0..3), None).await;
    scene.collect_one(new_climate(3)).await;

    // The second page fails, so the first one must not advance the watermark.
    scene.new_page(None, &posted(20..23), Some("t3_m20")).await;
    scene.refuse_new(ResponseTemplate::new(404)).await;
    let cut = scene.collect_one(new_climate(3)).await;
    assert_eq!((cut.outcome, cut.stored.new), (Outcome::Missing, 3));

    scene.new_page(None, &posted(20..23), Some("t3_m20")).await;
    scene
        .new_page(Some("t3_m20"), &posted(3..20), Some("t3_m3"))
        .await;
    let old = [child("ancient", &json!({"created_utc": 1_749_990_000}))];
    scene.new_page(Some("t3_m3"), &old, None).await;
    scene.collect_one(new_climate(3)).await;
    assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["24"]);
}

#[tokio::test]
async fn new_posts_beyond_reddits_listing_are_recorded_as_a_gap() {
    let scene = Scene::new().await;
    scene.new_page(None, &posted(0..1), None).await;
    scene.collect_one(new_climate(1)).await;
    let mut after = None;
    for page in (0..10).rev() {
        let first = 5_000 + 100 * page;
        let next = format!("t3_m{first}");
        scene
            .new_page(after.as_deref(), &posted(first..first + 100), Some(&next))
            .await;
        after = Some(next);
    }
    let report = scene.collect_one(new_climate(100)).await;
    assert_eq!((report.pages, report.stored.new), (10, 1_000));
    let gaps = scene.store().posts().gaps().await.unwrap();
    assert_eq!(gaps.len(), 1);
    let at = |minute: i64| Timestamp::from_epoch_secs(1_750_000_000 + 60 * minute).unwrap();
    assert_eq!((gaps[0].from_at, gaps[0].until_at), (at(0), at(5_000)));
}

/// A short listing that does not reach the stored posts leaves a gap, whether or not an empty page ends it.
#[tokio::test]
async fn a_listing_that_does_not_reach_the_stored_posts_leaves_a_gap_until_one_does() {
    let at = |minute: i64| Timestamp::from_epoch_secs(1_750_000_000 + 60 * minute).unwrap();
    for empty_page in [false, true] {
        let scene = Scene::new().await;
        let gaps = async || {
            let gaps = scene.store().posts().gaps().await.unwrap();
            let times = gaps.iter().map(|gap| (gap.from_at, gap.until_at));
            times.collect::<Vec<_>>()
        };
        scene.new_page(None, &posted(0..100), None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, []);
        let next = empty_page.then_some("t3_m2000");
        scene.new_page(None, &posted(2_000..2_100), next).await;
        if empty_page {
            scene.new_page(next, &[], None).await;
        }
        let report = scene.collect_one(new_climate(100)).await;
        assert_eq!((report.outcome, report.stored.new), (Outcome::Ok, 100));
        assert_eq!(gaps().await, [(at(99), at(2_000))]);
        // The gap remains: this listing reaches the newest stored post, but not the posts before the gap.
        scene.new_page(None, &posted(2_001..2_101), None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, [(at(99), at(2_000))]);
        let mut all = posted(2_090..2_102);
        all.extend(posted(90..100));
        scene.new_page(None, &all, None).await;
        scene.collect_one(new_climate(100)).await;
        assert_eq!(gaps().await, []);
    }
}
