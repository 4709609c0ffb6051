-- How often the label agrees with the topic that a post was collected for.
SELECT topic, posts, labelled, agreed, agreement
  FROM topic_agreement
 ORDER BY agreement DESC, topic
