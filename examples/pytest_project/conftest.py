"""The fixture `assert_no_slower`."""

pytest_plugins = ["suite.testing"]
