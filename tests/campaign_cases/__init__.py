"""The cases of ``make campaign`` (``campaign.py``)."""
