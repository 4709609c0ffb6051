//! The forms on the review page: answer, skip, undo, show skipped posts again, answer again, and fit.

use axum::Form;
use axum::extract::{FromRequest, Query, Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::filter::FilterQuery;
use super::notice::Action;
use super::{CurrentLabels, Review, Shared, name, offered};
use crate::serve::pages::{PageError, address};
use topicmill_core::{Fullname, GoldSource, SampleReason};
use topicmill_review::gold;
use topicmill_store::{GoldAnswer, ReviewFilter};

/// The fields in all forms.
#[derive(Debug, Deserialize)]
struct Fields {
    token: String,
    who: String,
    post: Option<String>,
    text: Option<String>,
    set: Option<String>,
    label: Option<String>,
    none: Option<String>,
    note: Option<String>,
}

/// A form with a valid CSRF token, and the filter from the page that sent it.
pub struct ReviewForm {
    who: String,
    fields: Fields,
    filter: FilterQuery,
}

impl FromRequest<Shared> for ReviewForm {
    type Rejection = Response;

    async fn from_request(request: Request, review: &Shared) -> Result<Self, Response> {
        let Query(filter) =
            Query::try_from_uri(request.uri()).map_err(IntoResponse::into_response)?;
        let Form(fields): Form<Fields> = Form::from_request(request, review)
            .await
            .map_err(IntoResponse::into_response)?;
        match name(Some(&fields.who)) {
            Some(who) if fields.token == review.token => Ok(Self {
                who,
                fields,
                filter,
            }),
            _ => Err(outdated().into_response()),
        }
    }
}

fn outdated() -> PageError {
    let message = "the form is outdated because the server was restarted, and nothing was stored; open /review again";
    PageError(StatusCode::FORBIDDEN, message.to_owned())
}

impl ReviewForm {
    /// Returns the post that the form is about.
    fn post(&self) -> Result<Fullname, PageError> {
        let post = self.fields.post.as_ref().and_then(|post| post.parse().ok());
        post.ok_or_else(outdated)
    }

    /// Returns the filter under the current label set.
    async fn filter(&self, review: &Review) -> Result<Option<ReviewFilter>, PageError> {
        match review.current_labels().await? {
            Some(current) => self.filter.filter(&current.set),
            None => Ok(None),
        }
    }

    /// Redirects to the next post so that reloading the page does not send the form again. `did` selects the notice on
    /// that page.
    fn redirect(&self, did: Option<Action>, post: Option<&Fullname>) -> Response {
        let parameters = std::iter::once(("as", self.who.as_str()))
            .chain(did.map(|did| ("did", did.as_str())))
            .chain(post.map(|post| ("post", post.as_str())))
            .chain(self.filter.pairs());
        let to = HeaderValue::from_str(&address("/review", parameters))
            .unwrap_or(HeaderValue::from_static("/review"));
        (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
    }
}

/// Stores an answer.
pub async fn answer(State(review): State<Shared>, form: ReviewForm) -> Result<Response, PageError> {
    let Some(CurrentLabels { target, set }) = review.current_labels().await? else {
        return Ok(form.redirect(None, None));
    };
    let fields = &form.fields;
    // The form is rejected if the labels have changed: "none of these" refers to the labels that were offered.
    if fields.set.as_deref() != Some(offered(&set).as_str()) {
        return Ok(form.redirect(Some(Action::MissedLabels), None));
    }
    let label = match (&fields.none, &fields.label) {
        (Some(_), _) => None,
        (None, Some(slug)) if set.label(slug).is_some() => Some(slug.clone()),
        _ => return Ok(form.redirect(Some(Action::MissedLabels), None)),
    };
    let post = form.post()?;
    let text = fields.text.as_ref().and_then(|text| text.parse().ok());
    let answer = GoldAnswer {
        fullname: post.clone(),
        annotator: form.who.clone(),
        label,
        label_set: Some(target.label_set),
        // This is used only if the queue does not know why the post was assigned.
        chosen: SampleReason::Closest,
        source: GoldSource::Review,
        answered_at: review.queue.clock.now().into(),
        is_dated: true,
        // This lets the queue detect whether the post has been edited since it was shown.
        text_hash: Some(text.ok_or_else(outdated)?),
        note: fields.note.as_deref().and_then(gold::gold_note),
    };
    Ok(if review.queue.answer(answer, target).await? {
        form.redirect(Some(Action::Answered), Some(&post))
    } else {
        form.redirect(Some(Action::MissedPost), None)
    })
}

/// Skips a post.
pub async fn skip(State(review): State<Shared>, form: ReviewForm) -> Result<Response, PageError> {
    review.queue.skip(&form.who, &form.post()?).await;
    Ok(form.redirect(Some(Action::Skipped), None))
}

/// Makes skipped posts available again.
pub async fn again(State(review): State<Shared>, form: ReviewForm) -> Response {
    review.queue.clear_skipped(&form.who).await;
    form.redirect(None, None)
}

/// Undoes the last answer.
pub async fn undo(State(review): State<Shared>, form: ReviewForm) -> Result<Response, PageError> {
    let filter = form.filter(&review).await?;
    let did = if review.queue.undo(&form.who, filter).await? {
        Action::Undone
    } else {
        Action::NothingToUndo
    };
    Ok(form.redirect(Some(did), None))
}

/// Shows an answered post again.
pub async fn reopen(State(review): State<Shared>, form: ReviewForm) -> Result<Response, PageError> {
    let (post, filter) = (form.post()?, form.filter(&review).await?);
    let did = if review.queue.reopen(&form.who, &post, filter).await? {
        Action::Reopened
    } else {
        Action::MissedPost
    };
    Ok(form.redirect(Some(did), None))
}

/// Starts a fit unless one is already running.
pub async fn fit_now(
    State(review): State<Shared>,
    form: ReviewForm,
) -> Result<Response, PageError> {
    if let Some(current) = review.current_labels().await? {
        let answered = review.queue.answered_posts(&current.set).await?;
        review.fitting.start(answered.all);
    }
    Ok(form.redirect(None, None))
}
