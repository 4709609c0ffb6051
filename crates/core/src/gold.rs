//! Defines the origin of gold labels.

string_enum! {
    /// The reason why a post was selected for a gold label.
    SampleReason {
        /// Drawn at random from all labelled posts.
        Random = "random",
        /// The scores of its two best labels are close (uncertainty sampling).
        Closest = "closest",
        /// Matches the filter of the review page.
        Filter = "filter",
        /// Selected outside topicmill and imported from a file.
        Import = "import",
    }
}

string_enum! {
    /// The tool in which an annotator assigned a gold label.
    GoldSource {
        /// The review page.
        Review = "review",
        /// An imported table.
        Import = "import",
        /// Label Studio.
        LabelStudio = "label-studio",
    }
}
