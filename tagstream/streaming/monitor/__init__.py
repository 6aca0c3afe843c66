"""What a run says about itself: progress, status, page, metrics, and the looks that find it out."""
