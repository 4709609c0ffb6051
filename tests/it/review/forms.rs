//! Tests the forms of the review page: invalid forms, concurrent changes, and the filter.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rejected_forms_store_nothing_and_a_kill_loses_no_answer() {
    for database in databases() {
        let scene = Scene::new(&database, 8).await;
        let served = Served::start(&scene, &[]);
        let page = served.get("/review").await;
        let (post, token) = (field(&page, "post"), field(&page, "token"));
        let (text, set) = (field(&page, "text"), field(&page, "set"));
        assert_eq!(field(&page, "who"), "ada");
        let form = |token| {
            [
                ("token", token),
                ("who", "ada"),
                ("post", &*post),
                ("text", &*text),
                ("set", &*set),
                ("label", "food"),
            ]
        };
        let wrong = "0".repeat(token.len());
        assert_eq!(
            served.post("/review/answer", &form(&wrong), None).await.0,
            403
        );
        let elsewhere = served
            .post("/review/answer", &form(&token), Some("http://evil.example"))
            .await;
        assert_eq!(elsewhere.0, 403);
        let count = || {
            scene.json(&["labels", "gold", "list"])["answers"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(count(), 0);
        // An unknown label, and an unknown post.
        let (_, page) = served
            .post(
                "/review/answer",
                &[
                    ("token", &*token),
                    ("who", "ada"),
                    ("post", &*post),
                    ("text", &*text),
                    ("set", &*set),
                    ("label", "sailing"),
                ],
                None,
            )
            .await;
        assert!(page.contains("label set changed in the meantime"), "{page}");
        assert_eq!(count(), 0);
        // The post is purged after the page has shown it.
        let ids = scene.program.write("ids.txt", format!("{post}\n"));
        scene.ok(&["purge", "--ids", &ids]);
        let (status, page) = served.post("/review/answer", &form(&token), None).await;
        assert_eq!(status, 200);
        assert!(page.contains("purged or edited in the meantime"), "{page}");
        assert_eq!(count(), 0);
        let next = field(&page, "post");
        let text = field(&page, "text");
        assert_ne!(next, post);
        let answered = [
            ("token", &*token),
            ("who", "ada"),
            ("post", &*next),
            ("text", &*text),
            ("set", &*set),
            ("label", "food"),
        ];
        assert_eq!(served.post("/review/answer", &answered, None).await.0, 200);
        assert_eq!(count(), 1);
        // After a kill nothing is lost, and the last answer can be undone.
        served.kill();
        let served = Served::start(&scene, &[]);
        assert_eq!(count(), 1);
        assert_eq!(
            served.post("/review/answer", &answered, None).await.0,
            403,
            "a form from before the kill"
        );
        let page = served.get("/review").await;
        let token = field(&page, "token");
        let (_, page) = served
            .post("/review/undo", &[("token", &*token), ("who", "ada")], None)
            .await;
        assert!(page.contains("was undone"), "{page}");
        assert_eq!(field(&page, "post"), next);
        assert_eq!(count(), 0);
        let (_, page) = served
            .post("/review/undo", &[("token", &*token), ("who", "ada")], None)
            .await;
        assert!(page.contains("nothing to undo"), "{page}");
        skipped_posts_are_offered_again(&served).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_refers_to_the_text_and_labels_that_the_page_showed() {
    for database in databases() {
        let scene = Scene::new(&database, 8).await;
        let served = Served::start(&scene, &["--random-share", "0"]);
        let answers = || scene.json(&["labels", "gold", "list"])["answers"].clone();
        // The form that the open page sends for "none of these". The server, not the form, decides whether the post is
        // random.
        let form = |page: &str| {
            let hidden = ["token", "who", "post", "text", "set"];
            let mut form = hidden.map(|name| (name, field(page, name))).to_vec();
            form.extend([("chosen", "random".to_owned()), ("none", "1".to_owned())]);
            form
        };
        let send = |form: Vec<(&'static str, String)>| {
            let served = &served;
            async move {
                let form: Vec<(&str, &str)> = form.iter().map(|(n, v)| (*n, v.as_str())).collect();
                served.post("/review/answer", &form, None).await
            }
        };
        let page = served.get("/review").await;
        assert_eq!(field(&page, "post"), "t3_k00000");
        let edited = scene
            .program
            .write("edited.ndjson", builders::line(0, "a new text"));
        scene.ok(&["import", &edited]);
        scene.ok(&["classify", "--pipeline", "first.toml"]);
        let (status, page) = send(form(&page)).await;
        assert_eq!(status, 200);
        assert!(page.contains("purged or edited in the meantime"), "{page}");
        assert_eq!(answers(), 0);
        // A form that lacks the `text` field is rejected.
        let short = form(&page).into_iter().filter(|(name, _)| *name != "text");
        assert_eq!(send(short.collect()).await.0, 403);
        let (_, page) = send(form(&page)).await;
        assert_eq!(answers(), 1);
        assert!(
            page.contains("<dd>0</dd><dt>random posts that count</dt>"),
            "the post was chosen as a close call"
        );
        // A different set has a label that was not offered, so the answer does not apply to it.
        let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
        let wider = scene
            .program
            .write("wider.toml", pipeline("wider", "", &more));
        scene.ok(&["classify", "--pipeline", &wider]);
        scene.ok(&["labels", "use", "wider"]);
        let (_, page) = send(form(&page)).await;
        assert!(page.contains("label set changed in the meantime"), "{page}");
        assert_eq!(answers(), 1);
        assert!(
            page.contains("<dd>0</dd><dt>random posts that count</dt>"),
            "{page}"
        );
        assert!(page.contains("boats and sailing"), "{page}");
        send(form(&page)).await;
        assert_eq!(answers(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_selects_by_label_and_score_and_its_answers_are_not_random() {
    for database in databases() {
        let scene = Scene::new(&database, 12).await;
        // Posts 0, 3, 6 and 9 are labelled gaming; 4 has no label.
        database
            .run("UPDATE classifications SET score = 0.4 WHERE fullname IN ('t3_k00003', 't3_k00006')")
            .await;
        database
            .run("UPDATE classifications SET abstained = TRUE WHERE fullname = 't3_k00004'")
            .await;
        let served = Served::start(&scene, &["--random-share", "1"]);
        // Without a filter, a random post is assigned; a filter selects different posts.
        served.get("/review").await;
        let query = "?label=gaming&from=0.3&to=0.5";
        let mut page = served.get(&format!("/review{query}")).await;
        let expected = "Posts labelled video games with a score of 0.30 to 0.50";
        let mut asked = Vec::new();
        for _ in 0..2 {
            assert!(page.contains(expected), "{page}");
            asked.push(field(&page, "post"));
            page = served.answer(&page, query, &[("label", "gaming")]).await;
        }
        asked.sort_unstable();
        assert_eq!(asked, ["t3_k00003", "t3_k00006"]);
        assert!(page.contains("No more posts match"), "{page}");
        let page = served.get("/review?label=unlabelled").await;
        assert_eq!(field(&page, "post"), "t3_k00004");
        let chosen = scene.json(&["labels", "gold", "list"])["chosen"].clone();
        assert_eq!(chosen, json!({"filter": 2}));
        // The page shows no overall estimate.
        let page = served.get("/review").await;
        assert!(
            page.contains("<dd>0</dd><dt>random posts that count</dt>"),
            "{page}"
        );
        assert!(page.contains("random sample</span>"), "{page}");
        scene
            .ok(&["labels", "evaluate", "--gold", "db"])
            .expect_stderr("are not representative");
        // After an undo, the post is shown again with its filter, which remains the recorded reason for choosing it.
        let page = served.get(&format!("/review{query}")).await;
        let token = field(&page, "token");
        let form = [("token", &*token), ("who", "ada")];
        let (_, page) = served
            .post(&format!("/review/undo{query}"), &form, None)
            .await;
        assert!(page.contains("<span>filter</span>"), "{page}");
        served.answer(&page, query, &[("none", "1")]).await;
        let chosen = scene.json(&["labels", "gold", "list"])["chosen"].clone();
        assert_eq!(chosen, json!({"filter": 2}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_of_these_is_asked_again_after_labels_were_added() {
    for database in databases() {
        let scene = Scene::new(&database, 8).await;
        let gold = "id,label\nk00004,none\nk00005,none\nk00006,food\nk00007,none\n";
        let gold = scene.program.write("gold.csv", gold);
        scene.ok(&["labels", "gold", "import", &gold, "--annotator", "ada"]);
        // The answer about this post was about an earlier text.
        let edited = builders::line(4, "a new text");
        scene.ok(&["import", &scene.program.write("edited.ndjson", edited)]);
        let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
        let wider = scene
            .program
            .write("wider.toml", pipeline("wider", "", &more));
        scene.ok(&["classify", "--pipeline", &wider, "--make-current"]);
        let served = Served::start(&scene, &[]);
        let mut page = served.get("/review").await;
        for post in ["t3_k00005", "t3_k00007"] {
            assert!(page.contains("before labels were added"), "{page}");
            assert_eq!(field(&page, "post"), post);
            let form = answer_form(&page, &[("none", "1")]);
            let form: Vec<(&str, &str)> = form.iter().map(|(n, v)| (*n, v.as_str())).collect();
            page = served.post("/review/answer", &form, None).await.1;
        }
        assert!(!page.contains("before labels were added"), "{page}");
        // Only the annotator who gave an answer is asked again.
        let page = served.get("/review?as=carl").await;
        assert!(!page.contains("before labels were added"), "{page}");
    }
}
