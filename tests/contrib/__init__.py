"""Nodes of com.microsoft in every form, which the tests of several subjects take."""
